// The data of an HTML report: one JSON object (docs/html.md), from which the page's script shows everything.
#pragma once

#include <string>

#include "analyzers/analysis.h"
#include "model/snapshot.h"

namespace rankstacks::report {

// Has no "<", which in a page could end the element that it is in, or begin a comment. All texts are sanitized.
std::string html_data(const JobSnapshot& job, const analyzers::Analysis& analysis, bool redacted);

}  // namespace rankstacks::report
