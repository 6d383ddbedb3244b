// Groups the ranks of a machine into jobs, without reading more of a process than its environment and its place.
//
// Ranks are one job if something links them, and nothing separates them:
//
//     links, the strongest first                       separated
//     1. the same names, parent and network            by their user
//     2. they meet at one address and port             by another world size
//     3. one name of a launcher (PMIx, torchelastic)   by the same rank number
//     4. one parent, the launcher                      by another meeting point, job of a scheduler, run of torchelastic
//     5. one step of Slurm                             by another name of the launcher, or step, unless they meet
//     6. orphans of one cgroup                         by the network, unless they meet at an address of several machines
//     7. a rank that another rank has started          (7: by user and number alone)
//
// What a rank does not say separates it from nobody, so a rank whose environment lacks a name joins the job with which
// it shares its parent. Within one link, ranks that were started shortly after each other are joined first. So two jobs
// that nothing but their rank numbers distinguishes, such as a job and what an earlier one on its port has left behind,
// are split where the time between the starts is longest. Ranks whose launcher has ended do not join a job whose
// launcher was started later than they were, even if it lacks their numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capture/job_processes.h"

namespace rankstacks::capture {

struct RankGroup {
  std::vector<Pid> ranks;          // by rank number
  std::vector<int> numbers;        // ascending
  std::vector<std::string> names;  // shown_job_name() of each name that no two of its ranks contradict
  std::optional<int> world_size;   // the largest that a rank states
  std::optional<long> user;
  std::optional<Pid> launcher;    // the parent of all of its ranks; none: they have several, or it has ended
  std::uint64_t start_ticks = 0;  // of the first of its ranks that was started
  std::optional<std::string> slurm_job;
  bool only_shells = false;  // all of them are shells, which have a rank from srun alone
};

// Each rank of the plan (kRank) is in exactly one group. Ordered by the start of the groups.
std::vector<RankGroup> group_ranks(const std::vector<PlannedTarget>& plan, const ProcessTable& table,
                                   const ProcessFacts& facts);

}  // namespace rankstacks::capture
