// Which ranks a rank's message or collective is with, by the arguments of the functions that it has called.
#pragma once

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// Fills RankState::group, peer, tag and root of a rank that waits for others.
void find_partners(const JobSnapshot& job, RankState& state);

}  // namespace rankstacks::analyzers
