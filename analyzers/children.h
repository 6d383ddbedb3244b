// The processes that ranks have started: a loader's worker that tells more than its rank's own stack, a child that is waited for, one that has died.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks {

// A zombie, or not there any more.
bool is_dead(const RankSnapshot& process);

// RankState::known_from_child, dead_child and child of the ranks whose own activity is to wait for a child, or may be: also that activity itself, of one that reads what a child
// prints. As many dead children as ranks in a collective have are nobody's loss.
void look_at_children(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, std::vector<RankState>& states);

}  // namespace rankstacks
