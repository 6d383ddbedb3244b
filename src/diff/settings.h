// What a rank is made of and given, apart from what its threads do: versions, its command, its place in the job.
#pragma once

#include "diff/job_diff.h"

namespace rankstacks::diff {

// The settings that differ between the two reports, each with the ranks for which old and new value are the same.
// Children are left out: their rank has what they have.
std::vector<SettingChange> changed_settings(const Sides& sides, const std::vector<ProcessChange>& processes);

}  // namespace rankstacks::diff
