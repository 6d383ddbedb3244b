// What a rank runs with (model/environment.h): versions of what it has loaded, variables, limits, and the machine below
// it, compared between the two reports; and what differed between ranks in one of them alone.
#pragma once

#include <vector>

#include "diff/job_diff.h"

namespace rankstacks::diff {

// Of one rank, without `ranks`. What one of the reports does not know of it is no change; nor is a library that only
// one of them has, since libraries are loaded when they are needed.
std::vector<SettingChange> environment_changes(const RankSnapshot& old, const RankSnapshot& now);

// The differences between ranks that only one of the reports has, or has with other values or ranks.
std::vector<DifferenceChange> difference_changes(const Sides& sides);

}  // namespace rankstacks::diff
