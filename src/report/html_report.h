// The report as one HTML page without any other file: the verdict, the merged tree, a flame graph, the graph of waits,
// every rank and thread. docs/html.md describes the page and its data.
#pragma once

#include <string>
#include <string_view>

#include "analyzers/analysis.h"
#include "model/snapshot.h"

namespace rankstacks::report {

struct HtmlOptions {
  bool redacted = false;  // names are pseudonyms: said in the report
};

// The page's policy (Content-Security-Policy) lets nothing run or load but its own script and style, which it names by
// their hashes. What comes from the job is in one block of JSON, and once more, as the text report, for browsers that
// run no scripts.
std::string html_report(const JobSnapshot& job, const analyzers::Analysis& analysis, const HtmlOptions& options);

// The sources in src/report/html/, as CMake has put them into the program: the scripts one after the other.
extern const std::string_view kHtmlScript;
extern const std::string_view kHtmlStyle;
extern const std::string_view kHtmlBody;

// "sha256-...": how a policy names a script or a style of this text.
std::string html_source_hash(std::string_view text);

}  // namespace rankstacks::report
