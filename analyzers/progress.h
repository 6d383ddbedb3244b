// How ranks move between several samples.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks {

// On a processor for a good part of the samples: it works or spins, rather than waking up now and then.
bool is_busy(const Motion& motion);

// RankState::progress, counts, left_wait, travels and busy, by the motion of the threads that tell for it.
void find_progress(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, RankState& state);

}  // namespace rankstacks
