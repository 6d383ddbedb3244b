// Checks of build-ids, symbols and debug information of what is loaded. They are grouped: a job has hundreds of
// libraries.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/system.h"

namespace rankstacks::doctor {

std::vector<Finding> check_names(const TargetFacts& facts);

Finding check_python(const TargetFacts& facts, Area area);

// "a.so, b.so and 3 more": base names, the first of them.
std::string list_names(const std::vector<std::string>& paths);

}  // namespace rankstacks::doctor
