#include "analyzers/thread_waits.h"

#include <algorithm>
#include <set>

namespace rankstacks {
namespace {

template <class Predicate>
std::optional<ThreadWait> wait_for(const RankSnapshot& rank, ThreadWait::For what, Predicate is_it) {
  const auto it = std::find_if(rank.threads.begin(), rank.threads.end(), is_it);
  if (it == rank.threads.end()) return std::nullopt;
  return ThreadWait{what, static_cast<std::size_t>(it - rank.threads.begin())};
}

}  // namespace

std::optional<ThreadWait> thread_wait_of(const RankSnapshot& rank, std::size_t thread) {
  const ThreadSnapshot& waiting = rank.threads[thread];
  if (waiting.python_lock && waiting.python_lock->owner)
    return wait_for(rank, ThreadWait::For::kPythonLock, [&](const ThreadSnapshot& t) { return t.tid == *waiting.python_lock->owner; });
  if (waiting.lock_owner) return wait_for(rank, ThreadWait::For::kNativeLock, [&](const ThreadSnapshot& t) { return t.tid == *waiting.lock_owner; });
  if (waiting.joins) return wait_for(rank, ThreadWait::For::kEnd, [&](const ThreadSnapshot& t) { return t.tid == *waiting.joins; });
  if (waiting.gil == Gil::kWaits) return wait_for(rank, ThreadWait::For::kGil, [](const ThreadSnapshot& t) { return t.gil == Gil::kHolds; });
  return std::nullopt;
}

std::vector<ThreadWait> thread_waits_from(const RankSnapshot& rank, std::size_t thread) {
  std::vector<ThreadWait> waits;
  std::set<std::size_t> passed{thread};
  for (auto next = thread_wait_of(rank, thread); next && passed.insert(next->thread).second; next = thread_wait_of(rank, next->thread)) waits.push_back(*next);
  return waits;
}

}  // namespace rankstacks
