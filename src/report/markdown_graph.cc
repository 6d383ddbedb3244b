#include "report/markdown_graph.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "report/markdown_text.h"
#include "report/wait_groups.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kLabelColumns = 60;

std::string label_of(const WaitGroup& group) {
  return mermaid_label(group.label.empty() ? analyzers::to_string(group.kind) : group.label, kLabelColumns);
}

}  // namespace

std::string markdown_graph(const JobSnapshot& job, const analyzers::Analysis& analysis) {
  const WaitGroups waits = group_waits(job, analysis, kMaxNodes);
  // A part of many nodes tells nothing; the chain's does.
  std::vector<bool> shown(waits.groups.size(), true);
  if (waits.left_out > 0)
    for (std::size_t i = 0; i < shown.size(); ++i) shown[i] = waits.groups[i].in_chain;
  if (std::count(shown.begin(), shown.end(), true) < 2) return "";

  std::string text = "```mermaid\ngraph LR\n", styles;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    if (!shown[i]) continue;
    text += fmt::format("  n{}[{}]\n", i, label_of(waits.groups[i]));
    if (waits.groups[i].suspect) styles += fmt::format("  style n{} stroke:#d00,stroke-width:3px\n", i);
  }
  for (const WaitGroupEdge& edge : waits.edges)
    if (shown[edge.from] && shown[edge.to])
      text += fmt::format("  n{} -->|{}| n{}\n", edge.from, analyzers::to_string(edge.evidence), edge.to);
  return text + styles + "```\n";
}

}  // namespace rankstacks::report
