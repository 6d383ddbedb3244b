// What stderr says if --job does not lead to one job: the jobs of the machine, and the command line that chooses one.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "capture/capture_job.h"

namespace rankstacks::cli {

// `words`: the command line, from which the hint is made.
void print_not_chosen(const capture::NotChosen& not_chosen, const std::vector<std::string>& words, std::ostream& err);

}  // namespace rankstacks::cli
