// `rankstacks diff OLD NEW`.
#pragma once

#include <iosfwd>

#include "cli/options.h"

namespace rankstacks::cli {

// Returns the exit status.
int run_diff(const Options& options, std::ostream& out, std::ostream& err);

}  // namespace rankstacks::cli
