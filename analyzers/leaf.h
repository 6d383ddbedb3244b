// What a thread does if no rule of a table says so: derived from the call that it is blocked in, from the
// interpreter's own frames, or by elimination.
#pragma once

#include "analyzers/activity.h"

namespace rankstacks::analyzers {

// The main program has ended, and the thread is on its way out of the interpreter or the process.
bool main_program_ended(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread);

// Whether it is blocked at a file, a terminal or a pipe, by which no library reaches other ranks.
bool blocked_at_file(const JobSnapshot& job, const ThreadSnapshot& thread);

// Returns `doing`, completed as far as possible; its activity is kUnknown if nothing could be determined.
Doing by_leaf(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread, Doing doing);

}  // namespace rankstacks::analyzers
