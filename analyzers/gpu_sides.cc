#include "analyzers/gpu_sides.h"

#include <algorithm>
#include <set>

#include "analyzers/flight_records.h"
#include "analyzers/launches.h"
#include "analyzers/names.h"
#include "known/modules.h"

namespace rankstacks::analyzers {
namespace {

constexpr double kAbsentFromGroup = 0.55;

// Its thread sleeps in a wait of the host's, and not in one for the GPU.
bool waits_on_host(const JobSnapshot& job, const RankState& s) {
  const ThreadSnapshot* thread = leading_thread(job, s);
  return thread != nullptr && thread->state != 'R' &&
         std::none_of(thread->frames.begin(), thread->frames.end(), [&](FrameId id) {
           return known::module_kind(base_name(job.frames[id].module)) == known::ModuleKind::kRuntime;
         });
}

}  // namespace

std::optional<Deadlock> own_gpu_work(const WaitingJob& waiting) {
  Side busy;
  for (const Side& side : waiting.sides)
    for (const std::size_t i : side) {
      const RankState& s = waiting.states[i];
      if (s.gpu_wait_may_be_collective) busy.push_back(i);
      else if (s.doing.activity != known::Activity::kCollective || !waits_on_host(waiting.job, s)) return std::nullopt;
    }
  if (busy.empty() || busy.size() * 2 > waiting.ranks ||
      !all_launched_the_same(waiting.job, waiting.states, waiting.all_members()))
    return std::nullopt;
  // NCCL does not count sends and receives, of which a scatter is made, too.
  const std::set<std::size_t> ahead = ranks_ahead_by_record(waiting.job);
  if (std::any_of(busy.begin(), busy.end(), [&](std::size_t i) { return ahead.contains(waiting.states[i].rank); }))
    return std::nullopt;
  Deadlock found = accuse_side(
      busy, Reason::kGpuWait,
      "by NCCL's counts all have launched the same, so that this is for no collective of the others", false);
  found.may_be_a_step = true;
  return found;
}

std::optional<Deadlock> absent_from_a_group(const WaitingJob& waiting) {
  if (!waiting.waits_for_gpu()) return std::nullopt;
  for (const PendingOperation& operation : waiting.operations) {
    if (!operation.certain || operation.members.size() * 2 <= waiting.ranks ||
        waiting.states[operation.members.front()].doing.activity != known::Activity::kCollective)
      continue;
    std::vector<std::size_t> absent;
    for (const std::size_t other : operation.operations)
      absent.insert(absent.end(), waiting.operations[other].members.begin(), waiting.operations[other].members.end());
    if (absent.empty() || !std::all_of(absent.begin(), absent.end(),
                                       [&](std::size_t i) { return waiting.states[i].gpu_wait_may_be_collective; }))
      continue;
    const bool compute = std::all_of(absent.begin(), absent.end(),
                                     [&](std::size_t i) { return waiting.states[i].gpu_computes == true; });
    return with_reference(
        waiting.accuse(absent, compute ? Reason::kGpuWait : Reason::kCollectiveMismatch, kAbsentFromGroup),
        kFromGroups);
  }
  return std::nullopt;
}

bool accuses_a_collective_kernel(const WaitingJob& waiting, const Deadlock& found) {
  return std::any_of(found.suspects.begin(), found.suspects.end(), [&](const Blame& blame) {
    return blame.reason == Reason::kGpuWait && waiting.states[blame.state].gpu.in_collective();
  });
}

}  // namespace rankstacks::analyzers
