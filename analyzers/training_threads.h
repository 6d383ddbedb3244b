// Jobs that train in a thread of their own, while the main thread joins it, polls it or waits for signals.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks {

// Where all main threads stand by in one function, and threads that began in one function wait for other ranks, these tell, of each rank that has one (RankState::doing,
// by_own_thread).
void refine_by_training_threads(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, Activities& activities, std::vector<RankState>& states);

}  // namespace rankstacks
