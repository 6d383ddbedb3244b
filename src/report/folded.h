// The stacks in the folded form of Brendan Gregg's FlameGraph, which inferno and speedscope read as well:
//
//     rank 0;main;<module> (train.py:90);main (train.py:17);all_reduce (…/torch/distributed/distributed_c10d.py:2000) 1
//
// One line for each different stack of a rank and role, outermost frame first, then the number of threads that have it.
// https://github.com/brendangregg/FlameGraph, stackcollapse.pl: frames are separated by ";", the count comes after the
// last blank of the line.
#pragma once

#include <string>
#include <vector>

#include "analyzers/analysis.h"
#include "model/snapshot.h"

namespace rankstacks::report {

// `ranks`: indices into JobSnapshot::ranks. Names are sanitized; a ";" in one becomes ":".
std::string folded_report(const JobSnapshot& job, const analyzers::Analysis& analysis,
                          const std::vector<std::size_t>& ranks);

}  // namespace rankstacks::report
