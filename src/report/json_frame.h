// One frame in the JSON report's form (docs/json.md).
#pragma once

#include <string>

#include "model/snapshot.h"

namespace rankstacks::report {

std::string json_of_frame(const Frame& frame);

}  // namespace rankstacks::report
