// The lines of the text and Markdown reports about versions, and about what differs between ranks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analyzers/analysis.h"
#include "model/snapshot.h"

namespace rankstacks::report {

// One sanitized line for each difference, at most `most`; then how many more there are. Empty: there is none.
std::vector<std::string> difference_lines(const JobSnapshot& job, const analyzers::Analysis& analysis,
                                          std::size_t most);

// Everything that is known, for a section that a click opens: each component, variable, limit, with the ranks that have
// each value. Sanitized.
std::vector<std::string> environment_lines(const JobSnapshot& job);

}  // namespace rankstacks::report
