#include "analyzers/thread_waits.h"

#include <algorithm>
#include <set>

#include "analyzers/place.h"

namespace rankstacks::analyzers {
namespace {

// Every one of several samples found it at one place, and no counter of it has advanced.
bool stays(const ThreadSnapshot& thread) {
  constexpr int kSeveral = 3;
  const auto& motion = thread.motion;
  return motion && motion->samples >= kSeveral && motion->places == 1 && !motion->moved && !motion->counted;
}

}  // namespace

std::optional<std::size_t> thread_with(const RankSnapshot& rank, Tid tid) {
  const auto it =
      std::find_if(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& t) { return t.tid == tid; });
  return it == rank.threads.end() ? std::nullopt : std::optional(static_cast<std::size_t>(it - rank.threads.begin()));
}

std::optional<ThreadWait> thread_wait_of(const RankSnapshot& rank, std::size_t thread) {
  const ThreadSnapshot& waiting = rank.threads[thread];
  const auto wait_for = [&](ThreadWait::For what, Tid tid) -> std::optional<ThreadWait> {
    const auto other = thread_with(rank, tid);
    return other ? std::optional(ThreadWait{what, *other}) : std::nullopt;
  };
  if (waiting.python_lock && waiting.python_lock->owner)
    return wait_for(ThreadWait::For::kPythonLock, *waiting.python_lock->owner);
  if (waiting.lock_owner) return wait_for(ThreadWait::For::kNativeLock, *waiting.lock_owner);
  if (waiting.joins) return wait_for(ThreadWait::For::kEnd, *waiting.joins);
  if (waiting.gil != Gil::kWaits) return std::nullopt;
  const auto holder = std::find_if(rank.threads.begin(), rank.threads.end(),
                                   [](const ThreadSnapshot& t) { return t.gil == Gil::kHolds; });
  return holder == rank.threads.end()
             ? std::nullopt
             : std::optional(
                   ThreadWait{ThreadWait::For::kGil, static_cast<std::size_t>(holder - rank.threads.begin())});
}

bool waits_in_own_circle(const RankSnapshot& rank, std::size_t thread) {
  const std::vector<ThreadWait> way = thread_waits_from(rank, thread);
  return thread_wait_of(rank, way.empty() ? thread : way.back().thread).has_value();
}

bool waits_for_kept_gil(const JobSnapshot& job, const RankSnapshot& rank, std::size_t thread) {
  const auto wait = thread_wait_of(rank, thread);
  if (!wait || wait->what != ThreadWait::For::kGil) return false;
  const ThreadSnapshot& holder = rank.threads[wait->thread];
  if (holder.motion && holder.motion->moved) return false;
  if (stays(rank.threads[thread]) && stays(holder) && !holder.frames.empty() &&
      job.frames[holder.frames.front()].kind == FrameKind::kNative)
    return true;
  const RunState state = run_state_of(job, holder);
  return state == RunState::kSleeping || state == RunState::kInCall;
}

std::vector<ThreadWait> thread_waits_from(const RankSnapshot& rank, std::size_t thread) {
  std::vector<ThreadWait> waits;
  std::set<std::size_t> passed{thread};
  for (auto next = thread_wait_of(rank, thread); next && passed.insert(next->thread).second;
       next = thread_wait_of(rank, next->thread))
    waits.push_back(*next);
  return waits;
}

}  // namespace rankstacks::analyzers
