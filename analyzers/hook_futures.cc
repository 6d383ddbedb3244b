#include "analyzers/hook_futures.h"

#include "analyzers/names.h"
#include "analyzers/native_waits.h"
#include "analyzers/place.h"
#include "base/text.h"

namespace rankstacks::analyzers {

bool waits_for_bucket(const JobSnapshot& job, const ThreadSnapshot& thread, std::size_t frame) {
  const auto function_at = [&](std::size_t i) { return job.frames[thread.frames[i]].function.value_or(""); };
  if (!contains(function_at(frame), "c10d::Reducer::finalize_backward") ||
      native_wait_of(job, thread) != NativeWait::kCondition)
    return false;
  for (std::size_t i = 0; i < frame; ++i)
    if (!is_opaque(job.frames[thread.frames[i]].module) && !contains(function_at(i), "c10::ivalue::Future::wait"))
      return false;
  return true;
}

std::optional<std::size_t> setter_of_hooks_future(const JobSnapshot& job, const RankSnapshot& rank,
                                                  std::size_t thread) {
  std::optional<std::size_t> found;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    if (t == thread || rank.threads[t].tid == rank.pid || !runs_users_code(job, rank.threads[t])) continue;
    if (found) return std::nullopt;
    found = t;
  }
  return found;
}

}  // namespace rankstacks::analyzers
