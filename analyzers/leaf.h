// What a thread does of which no rule of a table tells: by the call that it is blocked in, by the interpreter's own frames, by what is left over.
#pragma once

#include "analyzers/activity.h"

namespace rankstacks {

// The main program has ended: the thread is on its way out of the interpreter or the process.
bool main_program_ended(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread);

// `doing` with what could be told; kUnknown where nothing could.
Doing by_leaf(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread, Doing doing);

}  // namespace rankstacks
