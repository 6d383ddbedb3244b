#include "capture/core_families.h"

#include <map>
#include <string>
#include <tuple>

namespace rankstacks::capture {

void adopt_children(const std::vector<CoreProcess>& cores) {
  std::map<std::tuple<std::string, int, Pid>, const CoreProcess*> by_pid;
  const auto key = [](const RankSnapshot& rank, Pid pid) {
    return std::make_tuple(rank.host, rank.rank.value_or(-1), pid);
  };
  for (const CoreProcess& core : cores)
    if (core.snapshot->rank && core.snapshot->pid > 0) by_pid.emplace(key(*core.snapshot, core.snapshot->pid), &core);

  std::vector<std::pair<RankSnapshot*, Pid>> adopted;  // applied at the end: the numbers are needed until then
  for (const CoreProcess& core : cores) {
    if (!core.snapshot->rank) continue;
    const CoreProcess* top = &core;
    for (std::size_t steps = 0; top->parent && steps < cores.size();
         ++steps) {  // bounded: damaged cores may name each other
      const auto it = by_pid.find(key(*top->snapshot, *top->parent));
      if (it == by_pid.end() || it->second == top) break;
      top = it->second;
    }
    if (top != &core && top->snapshot->pid != core.snapshot->pid)
      adopted.emplace_back(core.snapshot, top->snapshot->pid);
  }
  // In a cycle each core would be a child of another: then none of them is treated as a child.
  std::map<Pid, bool> is_adopted;
  for (const auto& [child, parent] : adopted) is_adopted[child->pid] = true;
  for (const auto& [child, parent] : adopted) {
    if (is_adopted.contains(parent)) continue;
    child->kind = RankKind::kChild;
    child->parent = parent;
    child->rank = child->world_size = child->local_rank = child->local_world_size = {};
    child->coordinates.reset();
  }
}

}  // namespace rankstacks::capture
