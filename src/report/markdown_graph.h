// The graph of waits as a Mermaid graph, which GitHub and GitLab draw.
#pragma once

#include <string>

#include "analyzers/analysis.h"

namespace rankstacks::report {

// A block of code in Mermaid's language: the whole graph, or the chains of the suspects, or "", whichever has at most
// `kMaxNodes` nodes. Suspects have a red border.
inline constexpr std::size_t kMaxNodes = 20;
std::string markdown_graph(const JobSnapshot& job, const analyzers::Analysis& analysis);

}  // namespace rankstacks::report
