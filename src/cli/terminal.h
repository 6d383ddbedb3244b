// What is known of the terminal on which a report may be shown.
#pragma once

#include "cli/options.h"

namespace rankstacks::cli {

// Colour for a person at a terminal, unless https://no-color.org says no.
bool use_color(const Options& options);

// The columns of a report in text. A file or a pipe has a fixed number, so that reports can be compared; a terminal its
// own, within what is readable: what COLUMNS states, else what the kernel does.
int report_width(const Options& options);

}  // namespace rankstacks::cli
