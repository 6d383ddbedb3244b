// Completes the signal of a core whose process has died in the handler of a fault (target/handled_fault.h).
#pragma once

#include "capture/rank_stacks.h"

namespace rankstacks::capture {

// After unwind_threads(): nothing changes unless the process has sent the signal itself, and a handler was called.
void read_handled_fault(RankStacks& rank);

}  // namespace rankstacks::capture
