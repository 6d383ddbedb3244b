// Chooses one of the jobs of a machine: --job, --job ID, --job pid:N, user:NAME, cgroup:PATH.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "capture/job_groups.h"
#include "capture/job_processes.h"
#include "capture/user_names.h"

namespace rankstacks::capture {

struct JobChoice {
  enum class By {
    kOnly,    // the job that there is
    kName,    // as jobs are listed: "slurm:4711.0"
    kPid,     // the job to which the process belongs: a rank, a child of one, a launcher
    kUser,    // the only job of that user
    kCgroup,  // the only job with a rank in that control group, or below it
  } by = By::kOnly;
  std::string value;              // without "user:" or "cgroup:"
  Pid pid = 0;                    // kPid
  std::uint64_t start_ticks = 0;  // kPid: of that process, which another one with its pid is not; 0: of any

  static JobChoice of_process(Pid pid, std::uint64_t start_ticks = 0) {
    return {By::kPid, std::to_string(pid), pid, start_ticks};
  }
};

// "" (kOnly), "pid:N", "pid=N", "N", "user:NAME", "user=NAME", "cgroup:PATH", "cgroup=PATH"; everything else is a name.
Result<JobChoice> parse_job_choice(std::string_view word);

// A group of ranks under the names that choose it.
struct Job {
  RankGroup group;
  // The first of its names that no other job of the machine has. Every job has such a name: the last one is "pid:N" of
  // its first rank. An environment that copies the names of another job therefore changes the IDs of both, and never
  // makes one answer to the ID of the other.
  std::string id;
  std::vector<std::string> names;  // the group's, "ppid:LAUNCHER", "pid:RANK"
};
std::vector<Job> name_jobs(std::vector<RankGroup> groups);

enum class WhyNoJob {
  kNoRank,   // no process of the machine has a rank
  kSeveral,  // `candidates` are meant
  kNoSuchName,
  kNoSuchProcess,
  kNoJobOfProcess,
  kNoSuchUser,
  kNoJobOfUser,
  kNoJobInCgroup,
};

struct Chosen {
  std::optional<std::size_t> job;       // the index of the job
  WhyNoJob why = WhyNoJob::kNoRank;     // if there is none
  std::vector<std::size_t> candidates;  // the jobs from which one has to be chosen: those that are meant, else all
};

// Shells that have a rank from srun alone are only taken where there is no other job.
Chosen choose_job(const std::vector<Job>& jobs, const JobChoice& choice, const ProcessTable& table,
                  const ProcessFacts& facts, const UserNames& users);

}  // namespace rankstacks::capture
