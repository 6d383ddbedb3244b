#include "analyzers/wait_graph.h"

#include <algorithm>

namespace rankstacks::analyzers {

std::string_view to_string(NodeKind kind) {
  switch (kind) {
    case NodeKind::kThread: return "thread";
    case NodeKind::kProcess: return "process";
    case NodeKind::kOperation: return "operation";
    case NodeKind::kRanks: return "ranks";
    case NodeKind::kMissingRank: return "missing-rank";
    case NodeKind::kLock: return "lock";
    case NodeKind::kKernel: return "kernel";
    case NodeKind::kDescriptor: return "descriptor";
    case NodeKind::kTimer: return "timer";
  }
  return "";
}

std::string_view to_string(WaitEvidence evidence) {
  switch (evidence) {
    case WaitEvidence::kFrame: return "frame";
    case WaitEvidence::kSystemCall: return "system-call";
    case WaitEvidence::kMemory: return "memory";
    case WaitEvidence::kGroup: return "group";
    case WaitEvidence::kKernel: return "kernel";
    case WaitEvidence::kProcess: return "process";
    case WaitEvidence::kOthers: return "others";
  }
  return "";
}

std::string_view to_string(Certainty certainty) {
  switch (certainty) {
    case Certainty::kPossible: return "possible";
    case Certainty::kLikely: return "likely";
    case Certainty::kCertain: return "certain";
  }
  return "";
}

std::optional<std::size_t> WaitGraph::node_of_rank(std::size_t rank) const {
  return rank < of_rank_.size() ? of_rank_[rank] : std::nullopt;
}

std::optional<std::size_t> WaitGraph::node_of_missing(int rank) const {
  const auto it = std::find_if(nodes_.begin(), nodes_.end(), [&](const WaitNode& node) {
    return node.kind == NodeKind::kMissingRank && node.missing_rank == rank;
  });
  return it == nodes_.end() ? std::nullopt : std::optional(static_cast<std::size_t>(it - nodes_.begin()));
}

bool WaitGraph::is_needed(std::size_t rank) const {
  const auto node = node_of_rank(rank);
  return node && needed_[operation_of_[rank].value_or(*node)];
}

std::vector<std::size_t> WaitGraph::sinks() const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < of_rank_.size(); ++rank)
    if (!operation_of_[rank] && is_needed(rank)) ranks.push_back(rank);
  return ranks;
}

bool WaitGraph::in_cycle(std::size_t operation) const { return in_cycle_[operations_[operation]]; }

void WaitGraph::index() {
  out_.resize(nodes_.size());
  in_.resize(nodes_.size());
  for (std::size_t e = 0; e < edges_.size(); ++e) {
    out_[edges_[e].from].push_back(e);
    in_[edges_[e].to].push_back(e);
  }
  for (auto& edges : out_)
    std::stable_sort(edges.begin(), edges.end(),
                     [&](std::size_t a, std::size_t b) { return edges_[a].certainty > edges_[b].certainty; });
  find_needed();
  find_cycles();
}

void WaitGraph::find_needed() {
  needed_.assign(nodes_.size(), false);
  std::vector<std::size_t> open = operations_;
  std::vector<bool> seen(nodes_.size(), false);
  for (const std::size_t node : open) seen[node] = true;
  while (!open.empty()) {
    const std::size_t at = open.back();
    open.pop_back();
    for (const std::size_t e : out_[at]) {
      const std::size_t to = edges_[e].to;
      needed_[to] = true;
      if (seen[to]) continue;
      seen[to] = true;
      open.push_back(to);
    }
  }
}

// Tarjan's strongly connected components, without recursion: a job of lone senders and receivers is one long chain.
void WaitGraph::find_cycles() {
  constexpr std::size_t kUnseen = SIZE_MAX;
  const std::size_t n = nodes_.size();
  in_cycle_.assign(n, false);
  std::vector<std::size_t> order(n, kUnseen), low(n, 0), next(n, 0), stack, path;
  std::vector<bool> on_stack(n, false);
  std::size_t count = 0;
  for (std::size_t root = 0; root < n; ++root) {
    if (order[root] != kUnseen) continue;
    path.push_back(root);
    while (!path.empty()) {
      const std::size_t v = path.back();
      if (order[v] == kUnseen) {
        order[v] = low[v] = count++;
        stack.push_back(v);
        on_stack[v] = true;
      }
      if (next[v] < out_[v].size()) {
        const std::size_t w = edges_[out_[v][next[v]++]].to;
        if (order[w] == kUnseen) path.push_back(w);
        else if (on_stack[w]) low[v] = std::min(low[v], order[w]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[v]);
      if (low[v] != order[v]) continue;
      const bool alone = stack.back() == v;
      for (std::size_t w = kUnseen; w != v;) {
        w = stack.back();
        stack.pop_back();
        on_stack[w] = false;
        in_cycle_[w] = !alone;
      }
    }
  }
}

}  // namespace rankstacks::analyzers
