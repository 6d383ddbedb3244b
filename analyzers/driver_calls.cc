#include "analyzers/driver_calls.h"

#include <algorithm>
#include <set>

#include "analyzers/flight_records.h"
#include "analyzers/place.h"
#include "known/gpu_drivers.h"

namespace rankstacks::analyzers {
namespace {

bool waits_for_gpu(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
    const Frame& frame = job.frames[id];
    return frame.kind == FrameKind::kNative && frame.function && known::waits_for_gpu_alone(*frame.function);
  });
}

}  // namespace

bool is_in_driver_call(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.state != 'D' || waits_for_gpu(job, thread)) return false;
  if (thread.kernel_place && std::any_of(thread.kernel_place->stack.begin(), thread.kernel_place->stack.end(),
                                         [](const std::string& line) { return known::is_in_gpu_driver(line); }))
    return true;
  if (thread.syscall && thread.syscall->fd_target) return known::is_gpu_driver_file(*thread.syscall->fd_target);
  return blocking_call(job, thread) == "ioctl";
}

void refine_driver_calls(const JobSnapshot& job, std::vector<RankState>& states) {
  if (std::none_of(states.begin(), states.end(), [](const RankState& s) { return s.in_driver(); })) return;
  const std::set<std::size_t> ahead = ranks_ahead_by_record(job);
  for (RankState& s : states)
    if (!s.unrelated && s.in_driver() && ahead.contains(s.rank)) s.doing.activity = known::Activity::kGpuWait;
}

}  // namespace rankstacks::analyzers
