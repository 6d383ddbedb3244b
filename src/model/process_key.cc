#include "model/process_key.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace rankstacks {
inline namespace model {
namespace {

ProcessKey key_of(const std::string& host, const std::optional<PidSpace>& space, Pid pid) {
  return space ? ProcessKey{"", *space, pid} : ProcessKey{host, {}, pid};
}

NamespacedPid number_of(const RankSnapshot& process) { return {process.pid_space->pid_namespace, process.pid}; }

// What is known of a process besides its host and pid: a namespace, the boot, both.
std::uint64_t namespace_of(const RankSnapshot& process) {
  return process.own_pid ? process.own_pid->pid_namespace : process.pid_space->pid_namespace;
}
std::string boot_of(const RankSnapshot& process) { return process.pid_space->boot_id.substr(0, 8); }

}  // namespace

ProcessKey process_key(const RankSnapshot& counted_as, Pid pid) {
  return key_of(counted_as.host, counted_as.pid_space, pid);
}
ProcessKey process_key(const RankSnapshot& process) { return process_key(process, process.pid); }
ProcessKey process_key(const UnseenRank& process) { return key_of(process.host, process.pid_space, process.pid); }
ProcessKey process_key(const NcclMember::Process& process) {
  return key_of(process.host, process.pid_space, process.pid);
}

bool same_pids(const RankSnapshot& a, const RankSnapshot& b) {
  return a.pid_space && b.pid_space ? a.pid_space == b.pid_space : a.host == b.host;
}

bool is_parent(const RankSnapshot& rank, const RankSnapshot& child) {
  return child.parent == rank.pid && same_pids(rank, child);
}

std::optional<bool> same_process(const RankSnapshot& a, const RankSnapshot& b) {
  if (!a.pid_space || !b.pid_space) return std::nullopt;
  if (a.pid_space->boot_id != b.pid_space->boot_id) return false;
  if (a.start_ticks != 0 && b.start_ticks != 0 && a.start_ticks != b.start_ticks) return false;
  // A sandbox may show all of its containers the same boot and namespace.
  if (a.kind == b.kind && a.rank && b.rank && a.rank != b.rank) return false;
  return number_of(a) == number_of(b) || (a.own_pid && a.own_pid == b.own_pid);
}

void name_apart(JobSnapshot& job) {
  std::map<std::pair<std::string, Pid>, std::vector<RankSnapshot*>> alike;
  for (RankSnapshot& process : job.ranks) {
    process.name_suffix.clear();
    if (process.pid_space) alike[{process.host, process.pid}].push_back(&process);
  }
  for (auto& [name, processes] : alike) {
    if (processes.size() < 2) continue;
    std::set<std::uint64_t> namespaces;
    std::set<std::string> boots;
    for (const RankSnapshot* process : processes) {
      namespaces.insert(namespace_of(*process));
      boots.insert(boot_of(*process));
    }
    for (RankSnapshot* process : processes)
      process->name_suffix = namespaces.size() == processes.size() ? fmt::format("@{}", namespace_of(*process))
                             : boots.size() == processes.size()
                                 ? "@" + boot_of(*process)
                                 : fmt::format("@{}/{}", boot_of(*process), namespace_of(*process));
  }
}

}  // namespace model
}  // namespace rankstacks
