// Compares what runs on the GPUs of one job at two times. A stack shows whether the CPU gets on; whether a GPU does, in
// a rank that waits for it, only a second look at its kernels shows.
#pragma once

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Fills GpuExecution::moved of `after` for the devices of live ranks that `before` has too. A kernel is the same if its
// grid number, which the driver counts up with each launch of the process, and its entry are. std::nullopt is left if
// the device was idle both times.
void fold_sessions(const JobSnapshot& before, JobSnapshot& after);

// Whether a GPU of the rank got on between two sessions.
bool gpus_go_on(const RankSnapshot& rank);

}  // namespace rankstacks::analyzers
