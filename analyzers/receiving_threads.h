// Programs that no rule knows, and whose main threads wait on a condition for what threads of their own receive from
// other ranks: as a rule, a communication library of the program's own. The system calls of the receiving threads show
// from which ranks.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// Makes such ranks wait for others if every rank that does something else is among those that they receive from. A rank
// of which another thread does something that its main thread may wait for is left as it is.
void refine_by_receiving_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                 std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
