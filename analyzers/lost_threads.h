// Ranks that wait for a thread of their own that has ended: it would fill a queue or set an event, and the other ranks
// have it still. Or it was the one that trained, and the main thread goes on to serve requests.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// Fills RankState::lost_thread: of a rank that waits for something in Python that only another of its threads can do,
// has no other thread of the user's, and whose process was read completely, if each of the other ranks has a thread
// that begins in one function, the same for all; and of a rank that serves requests (RankState::serves becomes false)
// and has no such thread, if others are described by the thread that trains (RankState::by_own_thread).
void find_lost_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                       std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
