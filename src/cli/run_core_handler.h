// rankstacks core-handler: what kernel.core_pattern starts, with a core on the standard input (docs/cores.md).
#pragma once

#include <iosfwd>

#include "cli/options.h"

namespace rankstacks::cli {

// 0: the core is written; 1: something of it is not; 2: nothing is.
int run_core_handler(const Options& options, std::ostream& err);

}  // namespace rankstacks::cli
