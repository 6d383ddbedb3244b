// Rank states in the words of the report: what each rank does.
#pragma once

#include <optional>
#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// One for each process of the snapshot; std::nullopt for children, and for ranks whose frames do not show what they
// do.
std::vector<std::optional<RankActivity>> activities_of(const JobSnapshot& job, const std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
