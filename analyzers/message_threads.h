// Messages that a rank sends or receives in a thread of its own, while its main thread goes on: the tokens of a worker
// of a server, a checkpoint's parts, metrics.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// If a rank waits for a message of another, whose main thread waits for ranks where those of others do, and one thread
// of that rank is held up by something else while the like threads of these others have nothing to do, then the rank is
// described by that thread (RankState::doing, by_own_thread).
void refine_by_message_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                               Activities& activities, std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
