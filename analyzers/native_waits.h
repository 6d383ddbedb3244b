// Waits of native code for another thread, in the C library's own calls: a condition, a semaphore, a barrier, the end
// of a thread.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

enum class NativeWait : std::uint8_t { kNone, kCondition, kSemaphore, kBarrier, kThreadEnd };

// By the functions of the C and C++ libraries in the innermost run of frames. kNone also for a thread that runs, and
// for the interpreter's own waits, which are those of Python's locks (python_locks.h).
NativeWait native_wait_of(const JobSnapshot& job, const ThreadSnapshot& thread);

// For processes that communicate through memory that they share: most ranks wait at one place for another thread, and
// none of them has a thread that could come. Turns these waits into waits for the ranks that are elsewhere
// (Activity::kPeerWait, RankState::inferred).
void refine_by_lone_waits(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                          std::vector<RankState>& states);

// Whether the thread is in a futex call of native code that is none of the interpreter: a lock, a condition or a
// semaphore of another library (OpenMP's, C++'s), or the C library's without symbols.
bool stands_in_futex(const JobSnapshot& job, const ThreadSnapshot& thread);

// Of a rank that waits so in code of its own, and makes no progress: Activity::kNativeLock. Not if it is known which
// thread it waits for, and this one does something else than to wait; nor, unless the rank did not run at all, if
// another thread of it may be at work.
void refine_by_native_wait(const JobSnapshot& job, const std::vector<known::Role>& roles, RankState& state);

// If a thread of the process waits in native code for another one, and it is not known for which: threads of the
// process that wait for each other in a circle of locks, or one that waits for a lock that it holds; in the order of
// the circle. Empty if there is none, or more than one.
std::vector<std::size_t> circle_behind_native_wait(const JobSnapshot& job, const RankState& state);

}  // namespace rankstacks::analyzers
