// Jobs that train in a thread other than the main thread, while the main thread joins it, polls it or waits for
// signals.
#pragma once

#include <string>
#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// If all main threads are idle in one function, and threads with a common start function wait for other ranks, then
// each rank that has such a thread is described by it (RankState::doing, by_own_thread).
void refine_by_training_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                Activities& activities, std::vector<RankState>& states);

// If the main thread of a rank is idle, and one other thread of it is in a function of the user's in which another
// rank waits for the ranks or its GPU, then the rank is described by that thread: rank 0 of a server, whose main thread
// is an event loop, and which takes part in the work by a thread.
void refine_by_shared_work(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                           Activities& activities, std::vector<RankState>& states);

// Where a thread's own code begins: the outermost Python function of the user's, "prefetch of data.py", since the file
// may have another path on another machine. "" if it has none.
std::string entry_of(const JobSnapshot& job, const ThreadSnapshot& thread);

}  // namespace rankstacks::analyzers
