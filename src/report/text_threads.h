// Every thread in full: all frames, nothing folded.
#pragma once

#include <string>
#include <vector>

#include "report/report.h"
#include "report/text_style.h"

namespace rankstacks::report {

// The processes that `wanted` names by rank number, "host:pid" or pid; a rank's children are included. Empty: all.
std::vector<std::size_t> selected_ranks(const JobSnapshot& job, const std::vector<std::string>& wanted);

std::vector<std::string> thread_lines(const JobSnapshot& job, const analyzers::Analysis& analysis,
                                      const std::vector<std::size_t>& ranks, const TextStyle& style);

}  // namespace rankstacks::report
