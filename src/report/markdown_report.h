// The report as an issue's body in Markdown, for GitHub and GitLab: the verdict, its chain, versions, the job's shape
// and the clusters at once; everything else in sections that a click opens.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analyzers/analysis.h"
#include "model/snapshot.h"

namespace rankstacks::report {

struct MarkdownOptions {
  // GitHub takes 65,536 characters, and GitLab 1,048,576. Bytes of UTF-8 are counted, which are never fewer.
  std::size_t max_bytes = 65536;
  // --rank: shown in full (indices into JobSnapshot::ranks); empty: the suspects, or else the odd ranks.
  std::vector<std::size_t> ranks;
  bool redacted = false;  // names are pseudonyms: said in the report
};

// Never longer than max_bytes. The verdict and the clusters stay; of the sections the later ones are cut first, and
// what was left out is said. All texts from the job stand in code (markdown_text.h).
std::string markdown_report(const JobSnapshot& job, const analyzers::Analysis& analysis,
                            const MarkdownOptions& options);

}  // namespace rankstacks::report
