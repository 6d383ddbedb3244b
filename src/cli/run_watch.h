// `rankstacks watch`: reads what costs nothing, and takes the evidence when the job makes no progress.
#pragma once

#include <iosfwd>

#include "cli/options.h"

namespace rankstacks::cli {

// Returns at the end of the job, or of the watch by SIGTERM or SIGINT. 0: all reports that were called for were
// written; 1: one of them was not; 2: there is nothing to watch, or no place for reports.
int run_watch(const Options& options, std::ostream& err);

}  // namespace rankstacks::cli
