#include "capture/job_plan.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <climits>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "base/unattended.h"

namespace rankstacks::capture {
namespace {

// The processes whose environment the plan needs: all of the machine, or the given ones and their descendants.
std::vector<Pid> asked_processes(const LiveRequest& request, const ProcessTable& table) {
  std::vector<Pid> asked;
  if (request.job) {
    for (const auto& [pid, entry] : table.all())
      if (!entry.kernel_thread && entry.state != 'Z') asked.push_back(pid);
    return asked;
  }
  std::set<Pid> met;
  const auto add = [&](Pid pid) {
    const ProcessEntry* entry = table.find(pid);
    if (entry != nullptr && !entry->kernel_thread && pid != getpid() && met.insert(pid).second) asked.push_back(pid);
  };
  for (const Pid pid : request.pids) add(pid);
  for (std::size_t i = 0; i < asked.size(); ++i)
    for (const Pid child : table.children(asked[i])) add(child);
  return asked;
}

// Ticks count from the machine's start, which is CLOCK_BOOTTIME's zero.
std::chrono::system_clock::time_point time_of(std::uint64_t start_ticks) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto since_boot = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  const std::chrono::duration<double> started(static_cast<double>(start_ticks) /
                                              static_cast<double>(sysconf(_SC_CLK_TCK)));
  return std::chrono::system_clock::now() -
         std::chrono::duration_cast<std::chrono::system_clock::duration>(since_boot - started);
}

std::vector<ListedJob> listed(const std::vector<Job>& jobs, const std::vector<std::size_t>& candidates,
                              const Preparer& preparer, const UserNames& users) {
  std::vector<Pid> first;
  for (const std::size_t i : candidates) first.push_back(jobs[i].group.ranks.front());
  std::vector<std::vector<std::string>> commands = preparer.commands(first);
  std::vector<ListedJob> list;
  for (std::size_t n = 0; n < candidates.size(); ++n) {
    const Job& job = jobs[candidates[n]];
    list.push_back({.id = job.id,
                    .user = job.group.user ? users.name_of(*job.group.user) : std::string(),
                    .numbers = job.group.numbers,
                    .world_size = job.group.world_size,
                    .pids = job.group.ranks,
                    .started = time_of(job.group.start_ticks),
                    .command = std::move(commands[n])});
    std::sort(list.back().pids.begin(), list.back().pids.end());
  }
  return list;
}

// Processes with the name of a rank whose environment could not be read: of the same user, and where there are other
// jobs also from the same parent as a rank.
std::vector<PlannedTarget> silent_ranks_of(const RankGroup& group, bool only_job,
                                           const std::vector<PlannedTarget>& plan, const ProcessTable& table,
                                           Preparer& preparer) {
  std::set<Pid> launchers;
  for (const Pid rank : group.ranks)
    if (const ProcessEntry* entry = table.find(rank); entry != nullptr && entry->parent > 1)
      launchers.insert(entry->parent);
  std::vector<PlannedTarget> silent = preparer.silent_ranks(plan);
  std::erase_if(silent, [&](const PlannedTarget& target) {
    const ProcessEntry* entry = table.find(target.pid);
    return preparer.place(target.pid).user != group.user ||
           (!only_job && (entry == nullptr || !launchers.contains(entry->parent)));
  });
  return silent;
}

LivePlan plan_chosen(const JobChoice& choice, const ProcessTable& table, Preparer& preparer) {
  const ProcessFacts facts = preparer.facts();
  const std::vector<PlannedTarget> all = plan_job(table, facts, getpid());
  const std::vector<Job> jobs = name_jobs(group_ranks(all, table, facts));
  const UserNames users = UserNames::of_this_machine();
  const Chosen chosen = choose_job(jobs, choice, table, facts, users);
  LivePlan plan;
  if (!chosen.job) {
    plan.not_chosen = NotChosen{choice, chosen.why, listed(jobs, chosen.candidates, preparer, users)};
    return plan;
  }
  const RankGroup& group = jobs[*chosen.job].group;
  const std::set<Pid> ranks(group.ranks.begin(), group.ranks.end());
  std::copy_if(all.begin(), all.end(), std::back_inserter(plan.targets), [&](const PlannedTarget& target) {
    return ranks.contains(target.kind == RankKind::kRank ? target.pid : target.parent.value_or(0));
  });
  const auto silent = silent_ranks_of(group, jobs.size() == 1, plan.targets, table, preparer);
  plan.targets.insert(plan.targets.end(), silent.begin(), silent.end());
  return plan;
}

}  // namespace

namespace {

std::string program_of(const std::string& process) {
  std::string path(PATH_MAX, '\0');
  const ssize_t size = readlink(("/proc/" + process + "/exe").c_str(), path.data(), path.size());
  path.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return path;
}

// The name of a file by its path in /proc, which may have been deleted.
std::string_view name_of(std::string_view path) {
  path = path.substr(0, path.rfind(" (deleted)"));
  return path.substr(path.rfind('/') + 1);
}

// The processes that run the tool's own program. The text of a link asks nobody. Whether a file is the same one may be
// asked of its file system, and that of another user's process may never answer: so only files of the tool's name are
// compared, by workers, and none after one that did not answer.
std::set<Pid> tools_among(const std::vector<Pid>& pids) {
  struct Found {
    std::mutex mutex;
    std::set<Pid> tools;
    bool silent = false;
  };
  struct statx own {};
  constexpr int kFlags = AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
  if (statx(AT_FDCWD, "/proc/self/exe", kFlags, STATX_INO, &own) != 0) return {};
  const auto found = std::make_shared<Found>();
  const Unattended compare{
      [found, pids, own](std::size_t i) {
        {
          const std::lock_guard lock(found->mutex);
          if (found->silent) return;
        }
        struct statx program {};
        if (statx(AT_FDCWD, fmt::format("/proc/{}/exe", pids[i]).c_str(), kFlags, STATX_INO, &program) != 0 ||
            program.stx_ino != own.stx_ino || program.stx_dev_major != own.stx_dev_major ||
            program.stx_dev_minor != own.stx_dev_minor)
          return;
        const std::lock_guard lock(found->mutex);
        found->tools.insert(pids[i]);
      },
      kMinTimeout,
      [found](std::size_t, const Outcome&) {
        const std::lock_guard lock(found->mutex);
        found->silent = true;
      }};
  compare.run(pids.size());
  const std::lock_guard lock(found->mutex);
  return found->tools;
}

// The request's `among`, this tool, and their ancestors and descendants.
ProcessTable kin_in(const ProcessTable& table, std::vector<Pid> pids) {
  pids.push_back(getpid());
  std::set<Pid> kept;
  for (const Pid pid : pids) {
    std::set<Pid> met;  // a table that was read while processes came and went may have a cycle
    for (const ProcessEntry* up = table.find(pid); up != nullptr && met.insert(up->pid).second;
         up = table.find(up->parent))
      kept.insert(up->pid);
  }
  std::set<Pid> met(pids.begin(), pids.end());
  for (std::size_t i = 0; i < pids.size(); ++i) {
    kept.insert(pids[i]);
    for (const Pid child : table.children(pids[i]))
      if (met.insert(child).second) pids.push_back(child);
  }
  std::vector<ProcessEntry> entries;
  for (const auto& [pid, entry] : table.all())
    if (kept.contains(pid)) entries.push_back(entry);
  return ProcessTable(std::move(entries));
}

}  // namespace

ProcessTable table_for(const LiveRequest& request) {
  ProcessTable table = ProcessTable::scan();
  if (request.job && !request.among.empty()) table = kin_in(table, request.among);
  if (!request.without_tools) return table;
  const std::string own = program_of("self");
  std::vector<Pid> candidates;
  for (const auto& [pid, entry] : table.all()) {
    const bool is_named = std::find(request.pids.begin(), request.pids.end(), pid) != request.pids.end();
    if (!entry.kernel_thread && !is_named && pid != getpid() &&
        name_of(program_of(std::to_string(pid))) == name_of(own))
      candidates.push_back(pid);
  }
  const std::set<Pid> tools = tools_among(candidates);
  std::vector<ProcessEntry> entries;
  for (const auto& [pid, entry] : table.all())
    if (!tools.contains(pid)) entries.push_back(entry);
  return ProcessTable(std::move(entries));
}

LivePlan plan_live(const LiveRequest& request, const ProcessTable& table, Preparer& preparer) {
  if (request.alone) {
    preparer.read_ahead(request.pids);
    LivePlan plan;
    for (const Pid pid : request.pids) plan.targets.push_back({.pid = pid});
    return plan;
  }
  preparer.read_ahead(asked_processes(request, table));
  if (request.job) return plan_chosen(*request.job, table, preparer);
  return {plan_pids(request.pids, table, preparer.facts(), getpid()), std::nullopt};
}

}  // namespace rankstacks::capture
