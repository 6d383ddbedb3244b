// Jobs that train in a thread other than the main thread, while the main thread joins it, polls it or waits for
// signals.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// If all main threads are idle in one function, and threads with a common start function wait for other ranks, then
// each rank that has such a thread is described by it (RankState::doing, by_own_thread).
void refine_by_training_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                Activities& activities, std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
