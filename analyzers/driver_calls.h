// Threads in calls of the GPU's driver that the kernel does not interrupt.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Whether the thread is in such a call (state D). The driver has locks that all processes of a machine share, so that
// such a call says nothing about what the thread's program does: a process that sets up its GPU, or a debugger of
// another job, may hold the lock for seconds. What the frames outside of the call would say (a collective that the
// thread is about to launch) is no wait for other ranks either. A call within a wait for what the GPU runs is a part of
// that wait: on a GPU that many processes share, the driver is called from it again and again.
bool is_in_driver_call(const JobSnapshot& job, const ThreadSnapshot& thread);

// A rank in such a call that has called a collective which another rank has not, by PyTorch's record: whatever its call
// waits for, what it has launched on its GPU waits for that rank.
void refine_driver_calls(const JobSnapshot& job, std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
