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

// Of a rank that did not run between the samples, and waits so in code of its own: Activity::kNativeLock. Not if it is
// known which thread it waits for, and this one does something else than to wait.
void refine_by_native_wait(const JobSnapshot& job, RankState& state);

}  // namespace rankstacks::analyzers
