#include "report/markdown_graph.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "report/markdown_text.h"
#include "report/sanitize.h"
#include "report/text_chains.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kLabelColumns = 60;

std::set<std::size_t> nodes_of_chains(const analyzers::Analysis& analysis) {
  std::set<std::size_t> nodes;
  for (const analyzers::WaitChain& chain : analysis.verdict.chains)
    for (const analyzers::WaitChain::Link& link : chain.links) nodes.insert(link.node);
  return nodes;
}

std::string label_of(const JobSnapshot& job, const analyzers::WaitNode& node) {
  std::string text = sanitize(describe_link(job, node, std::nullopt));
  if (text.empty()) text = analyzers::to_string(node.kind);
  return mermaid_label(text, kLabelColumns);
}

bool is_suspect(const analyzers::Verdict& verdict, const analyzers::WaitNode& node) {
  return std::any_of(verdict.suspects.begin(), verdict.suspects.end(), [&](const analyzers::Suspect& suspect) {
    if (suspect.missing_rank >= 0) return node.missing_rank == suspect.missing_rank;
    return node.kind == analyzers::NodeKind::kThread && node.rank == suspect.rank;
  });
}

}  // namespace

std::string markdown_graph(const JobSnapshot& job, const analyzers::Analysis& analysis) {
  const auto& nodes = analysis.waits.nodes();
  const auto& edges = analysis.waits.edges();
  std::set<std::size_t> shown;
  if (nodes.size() <= kMostNodes)
    for (const analyzers::WaitEdge& edge : edges) shown.insert({edge.from, edge.to});
  else shown = nodes_of_chains(analysis);
  if (shown.size() < 2 || shown.size() > kMostNodes) return "";

  std::string text = "```mermaid\ngraph LR\n", styles;
  for (const std::size_t n : shown) {
    text += fmt::format("  n{}[{}]\n", n, label_of(job, nodes[n]));
    if (is_suspect(analysis.verdict, nodes[n])) styles += fmt::format("  style n{} stroke:#d00,stroke-width:3px\n", n);
  }
  for (const analyzers::WaitEdge& edge : edges)
    if (shown.contains(edge.from) && shown.contains(edge.to))
      text += fmt::format("  n{} -->|{}| n{}\n", edge.from, analyzers::to_string(edge.evidence), edge.to);
  return text + styles + "```\n";
}

}  // namespace rankstacks::report
