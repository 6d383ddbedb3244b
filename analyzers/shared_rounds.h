// The rounds of a loop that all ranks are in, by a variable whose name does not say that it counts them.
//
//     for number in range(steps):        number 3, 3, 4, 4 on ranks 0 to 3: two rounds, one after the other
//
// "number" may as well be a rank's number, or the row of a grid. So it counts only if all ranks have the variable in a
// loop of one function, its values are two that follow each other, shared by at least three ranks, and neither is so
// small that it may be one of two rows, columns or stages.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// One for each state, 0 for those that are in no comparison; empty if there is no such loop.
std::vector<std::int64_t> shared_rounds(const JobSnapshot& job, const std::vector<RankState>& states);

// Whether two ranks are in the same round of all loops that they are in: there is a loop, each function with one has a
// variable that counts or may count, and all of these have equal values.
bool in_one_round(const JobSnapshot& job, const RankState& a, const RankState& b);

// Whether some variable that counts, or may count, has different values in a loop of both.
bool in_different_rounds(const JobSnapshot& job, const RankState& a, const RankState& b);

}  // namespace rankstacks::analyzers
