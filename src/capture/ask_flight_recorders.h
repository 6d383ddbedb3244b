// --flight-recorder ask: has PyTorch's Flight Recorder of each live rank write a dump now, and reads it.
//
// torch makes a pipe with a name for each rank, $TORCH_NCCL_DEBUG_INFO_PIPE_FILE<rank>.pipe, and looks once a second
// whether something was written into it (ProcessGroupNCCL.cpp: DumpPipe). This is the only part of the tool that makes
// a process do something: it is not done unless asked for.
//
//     the pipe: below the process's own root directory; a FIFO of the process's user that this very process has open
//        └─ one byte, without waiting ──> the rank writes its dump, in its own time ──> read as soon as it is whole
#pragma once

#include "capture/flight_records.h"
#include "model/snapshot.h"

namespace rankstacks::capture {

// The longest wait for all dumps together. The first dump that a rank of torch 2.11 wrote took it 5 to 8 s, most of
// them for the stacks of its operations.
inline constexpr std::chrono::seconds kLongestForDumps{20};

// The dumps replace those that the ranks have. A rank that has no such pipe, or that does not answer within `limit` and
// kLongestForDumps, has a problem that says so.
void ask_flight_recorders(JobSnapshot& job, Limit limit);

}  // namespace rankstacks::capture
