#include "capture/job_choice.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <set>

namespace rankstacks::capture {
namespace {

// Process trees are less deep; the table is not read in one instant, so it may contain a cycle.
constexpr int kMaxDepth = 64;

// What follows "pid:" or "pid=".
std::optional<std::string_view> after(std::string_view form, std::string_view word) {
  if (!word.starts_with(form) || word.size() == form.size()) return std::nullopt;
  const char separator = word[form.size()];
  return separator == ':' || separator == '=' ? std::optional(word.substr(form.size() + 1)) : std::nullopt;
}

std::optional<Pid> parse_pid(std::string_view text) {
  Pid pid = 0;
  const auto [p, e] = std::from_chars(text.data(), text.data() + text.size(), pid);
  return e == std::errc() && p == text.data() + text.size() && pid > 0 ? std::optional(pid) : std::nullopt;
}

tl::unexpected<Error> usage(std::string_view expected) {
  return fail({.code = ErrorCode::kUsage, .subject = "--job", .what = fmt::format("expected {}", expected)});
}

using Jobs = std::vector<std::size_t>;

Jobs jobs_where(const std::vector<Job>& jobs, const std::function<bool(const Job&)>& fits) {
  Jobs found;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    if (fits(jobs[i])) found.push_back(i);
  return found;
}

// The processes above one, from its parent on.
std::vector<Pid> ancestors(Pid pid, const ProcessTable& table) {
  std::vector<Pid> above;
  const ProcessEntry* entry = table.find(pid);
  while (entry != nullptr && above.size() < kMaxDepth) {
    above.push_back(entry->parent);
    entry = table.find(entry->parent);
  }
  return above;
}

Jobs jobs_of_process(Pid pid, const std::vector<Job>& jobs, const ProcessTable& table, const ProcessFacts& facts) {
  std::map<Pid, std::size_t> job_of;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    for (const Pid rank : jobs[i].group.ranks) job_of.emplace(rank, i);
  std::vector<Pid> upwards = ancestors(pid, table);
  upwards.insert(upwards.begin(), pid);
  for (const Pid at : upwards)
    if (const auto rank = job_of.find(at); rank != job_of.end()) return {rank->second};
  std::set<std::size_t> below;
  for (const auto& [rank, job] : job_of) {
    const std::vector<Pid> above = ancestors(rank, table);
    if (std::find(above.begin(), above.end(), pid) != above.end()) below.insert(job);
  }
  if (!below.empty()) return {below.begin(), below.end()};
  // srun's tasks are children of slurmstepd.
  const ProcessEntry* entry = table.find(pid);
  if (entry == nullptr || entry->name != "srun") return {};
  const auto environment = facts.environment(pid);
  const auto slurm_job = environment.find("SLURM_JOB_ID");
  if (slurm_job == environment.end()) return {};
  const auto user = facts.place ? facts.place(pid).user : std::nullopt;
  return jobs_where(jobs,
                    [&](const Job& job) { return job.group.slurm_job == slurm_job->second && job.group.user == user; });
}

// Whether a line of /proc/PID/cgroup ("4:memory:/a/b", "0::/a/b") has that path, or one below it.
bool is_in_cgroup(std::string_view cgroups, std::string_view path) {
  while (!cgroups.empty()) {
    std::string_view line = cgroups.substr(0, cgroups.find('\n'));
    cgroups.remove_prefix(std::min(cgroups.size(), line.size() + 1));
    for (int field = 0; field < 2 && !line.empty(); ++field)
      line.remove_prefix(std::min(line.size(), line.find(':') == line.npos ? line.size() : line.find(':') + 1));
    if (line.starts_with(path) && (line.size() == path.size() || line[path.size()] == '/')) return true;
  }
  return false;
}

Jobs jobs_in_cgroup(std::string_view path, const std::vector<Job>& jobs, const ProcessFacts& facts) {
  constexpr std::string_view kMount = "/sys/fs/cgroup";
  if (path.starts_with(std::string(kMount) + "/")) path.remove_prefix(kMount.size());
  while (path.ends_with('/')) path.remove_suffix(1);
  return jobs_where(jobs, [&](const Job& job) {
    return std::any_of(job.group.ranks.begin(), job.group.ranks.end(),
                       [&](Pid rank) { return facts.place && is_in_cgroup(facts.place(rank).cgroups, path); });
  });
}

// The jobs that are meant; or why there are none.
struct Meant {
  Jobs jobs;
  WhyNoJob why_none;
};

Meant meant_by(const JobChoice& choice, const std::vector<Job>& jobs, const ProcessTable& table,
               const ProcessFacts& facts, const UserNames& users) {
  switch (choice.by) {
    case JobChoice::By::kOnly: return {jobs_where(jobs, [](const Job&) { return true; }), WhyNoJob::kNoRank};
    case JobChoice::By::kName:
      return {jobs_where(jobs,
                         [&](const Job& job) {
                           return std::find(job.names.begin(), job.names.end(), choice.value) != job.names.end();
                         }),
              WhyNoJob::kNoSuchName};
    case JobChoice::By::kPid: {
      const ProcessEntry* process = table.find(choice.pid);
      if (process == nullptr || (choice.start_ticks != 0 && choice.start_ticks != process->start_ticks))
        return {{}, WhyNoJob::kNoSuchProcess};
      return {jobs_of_process(choice.pid, jobs, table, facts), WhyNoJob::kNoJobOfProcess};
    }
    case JobChoice::By::kUser: {
      const auto uid = users.uid_of(choice.value);
      if (!uid) return {{}, WhyNoJob::kNoSuchUser};
      return {jobs_where(jobs, [&](const Job& job) { return job.group.user == *uid; }), WhyNoJob::kNoJobOfUser};
    }
    case JobChoice::By::kCgroup: break;
  }
  return {jobs_in_cgroup(choice.value, jobs, facts), WhyNoJob::kNoJobInCgroup};
}

}  // namespace

Result<JobChoice> parse_job_choice(std::string_view word) {
  if (word.empty()) return JobChoice{};
  const bool digits = word.find_first_not_of("0123456789") == std::string_view::npos;
  if (const auto text = digits ? std::optional(word) : after("pid", word)) {
    const auto pid = parse_pid(*text);
    if (!pid) return usage("a process id after \"pid:\"");
    return JobChoice::of_process(*pid);
  }
  if (const auto user = after("user", word)) {
    if (user->empty()) return usage("a user's name or number after \"user:\"");
    return JobChoice{JobChoice::By::kUser, std::string(*user)};
  }
  if (const auto cgroup = after("cgroup", word)) {
    if (!cgroup->starts_with('/')) return usage("the absolute path of a control group after \"cgroup:\"");
    return JobChoice{JobChoice::By::kCgroup, std::string(*cgroup)};
  }
  return JobChoice{JobChoice::By::kName, std::string(word)};
}

std::vector<Job> name_jobs(std::vector<RankGroup> groups) {
  std::vector<Job> jobs;
  std::map<std::string, int> uses;
  for (RankGroup& group : groups) {
    Job& job = jobs.emplace_back();
    job.names = group.names;
    if (group.launcher) job.names.push_back(fmt::format("ppid:{}", *group.launcher));
    job.names.push_back(fmt::format("pid:{}", group.ranks.front()));
    job.group = std::move(group);
    for (const std::string& name : std::set<std::string>(job.names.begin(), job.names.end())) ++uses[name];
  }
  for (Job& job : jobs)
    job.id = *std::find_if(job.names.begin(), std::prev(job.names.end()),
                           [&](const std::string& name) { return uses[name] == 1; });
  return jobs;
}

Chosen choose_job(const std::vector<Job>& jobs, const JobChoice& choice, const ProcessTable& table,
                  const ProcessFacts& facts, const UserNames& users) {
  Meant meant = meant_by(choice, jobs, table, facts, users);
  const bool any =
      choice.by == JobChoice::By::kOnly || choice.by == JobChoice::By::kUser || choice.by == JobChoice::By::kCgroup;
  if (any && meant.jobs.size() > 1) {
    Jobs programs;
    std::copy_if(meant.jobs.begin(), meant.jobs.end(), std::back_inserter(programs),
                 [&](std::size_t i) { return !jobs[i].group.only_shells; });
    if (!programs.empty()) meant.jobs = std::move(programs);
  }
  Chosen chosen;
  if (meant.jobs.size() == 1) {
    chosen.job = meant.jobs.front();
  } else if (!meant.jobs.empty()) {
    chosen.why = WhyNoJob::kSeveral;
    chosen.candidates = std::move(meant.jobs);
  } else {
    chosen.why = jobs.empty() && choice.by == JobChoice::By::kOnly ? WhyNoJob::kNoRank : meant.why_none;
    chosen.candidates = jobs_where(jobs, [](const Job&) { return true; });
  }
  return chosen;
}

}  // namespace rankstacks::capture
