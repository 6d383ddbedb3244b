#include "analyzers/wait_chains.h"

#include <deque>
#include <set>

#include "analyzers/analysis.h"

namespace rankstacks::analyzers {
namespace {

// The edges to `target` from the nearest rank that depends on it and is not in `suspects`; if there is none, from the
// nearest suspect. Found by a breadth-first search backwards.
std::vector<std::size_t> path_to(const WaitGraph& graph, std::size_t target, const std::set<std::size_t>& suspects) {
  std::vector<std::optional<std::size_t>> next(graph.nodes().size());  // the edge that leads on to the target
  std::vector<bool> seen(graph.nodes().size(), false);
  std::deque<std::size_t> queue{target};
  std::optional<std::size_t> begin, begin_among_suspects;
  seen[target] = true;
  while (!queue.empty() && !begin) {
    const std::size_t node = queue.front();
    queue.pop_front();
    for (const std::size_t e : graph.edges_to(node)) {
      const std::size_t from = graph.edges()[e].from;
      if (seen[from]) continue;
      seen[from] = true;
      next[from] = e;
      queue.push_back(from);
      const auto rank = graph.nodes()[from].rank;
      if (graph.nodes()[from].kind != NodeKind::kThread || graph.node_of_rank(*rank) != from) continue;
      if (!suspects.contains(*rank)) {
        if (!begin) begin = from;
      } else if (!begin_among_suspects) {
        begin_among_suspects = from;
      }
    }
  }
  if (!begin) begin = begin_among_suspects;
  std::vector<std::size_t> path;
  for (auto node = begin; node && *node != target; node = graph.edges()[*next[*node]].to) path.push_back(*next[*node]);
  return path;
}

}  // namespace

std::vector<WaitChain> chains_of(const WaitGraph& graph, const std::vector<Suspect>& suspects) {
  constexpr std::size_t kMaxChains = 64;  // as many suspects as a summary names; each costs one pass over the graph
  std::set<std::size_t> ranks;
  for (const Suspect& s : suspects) ranks.insert(s.rank);
  std::vector<WaitChain> chains;
  for (std::size_t i = 0; i < suspects.size() && chains.size() < kMaxChains; ++i) {
    const Suspect& s = suspects[i];
    const auto target = s.rank == SIZE_MAX ? graph.node_of_missing(s.missing_rank) : graph.node_of_rank(s.rank);
    if (!target) continue;
    WaitChain chain{.suspect = i, .from = {}, .links = {}};
    std::set<std::size_t> on_it;
    const auto append = [&](std::size_t edge) {
      chain.links.push_back({graph.edges()[edge].from, graph.edges()[edge].evidence});
      on_it.insert(graph.edges()[edge].from);
    };
    const std::vector<std::size_t> path = path_to(graph, *target, ranks);
    if (!path.empty()) chain.from = graph.nodes()[graph.edges()[path.front()].from].rank;
    for (const std::size_t edge : path) append(edge);
    std::size_t node = *target;
    while (!graph.edges_from(node).empty() && !on_it.contains(node)) {
      const std::size_t edge = graph.edges_from(node).front();
      append(edge);
      node = graph.edges()[edge].to;
    }
    chain.links.push_back({node, {}});
    chains.push_back(std::move(chain));
  }
  return chains;
}

}  // namespace rankstacks::analyzers
