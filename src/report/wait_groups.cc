#include "report/wait_groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "model/rank_set.h"
#include "report/sanitize.h"
#include "report/text_chains.h"

namespace rankstacks::report {
namespace {

using analyzers::NodeKind;
using analyzers::WaitEdge;
using analyzers::WaitNode;

constexpr std::size_t kNone = SIZE_MAX;

class Grouping {
 public:
  Grouping(const JobSnapshot& job, const analyzers::Analysis& analysis)
      : job_(job), verdict_(analysis.verdict), waits_(analysis.waits), class_of_(waits_.nodes().size()) {
    first_classes();
    // Each round distinguishes nodes by what they wait for. A chain of n nodes takes n rounds to settle; where it is
    // not settled after these, some nodes stay merged whose waits differ only far away.
    constexpr int kMaxRounds = 16;
    for (int round = 0; round < kMaxRounds && refine(); ++round) continue;
  }

  WaitGroups groups(std::size_t most) {
    make_groups();
    mark_chains();
    make_edges();
    keep(most);
    return std::move(made_);
  }

 private:
  bool is_suspect(const WaitNode& node) const {
    return std::any_of(verdict_.suspects.begin(), verdict_.suspects.end(), [&](const analyzers::Suspect& suspect) {
      if (suspect.missing_rank >= 0) return node.missing_rank == suspect.missing_rank;
      return (node.kind == NodeKind::kThread || node.kind == NodeKind::kProcess) && node.rank == suspect.rank;
    });
  }

  // "": the rank's main thread.
  std::string thread_name(const WaitNode& node) const {
    if (!node.rank || !node.thread) return "";
    const RankSnapshot& rank = job_.ranks[*node.rank];
    const ThreadSnapshot& thread = rank.threads[*node.thread];
    if (thread.tid == rank.pid) return "";
    return thread.name.empty() ? "another thread" : "thread " + thread.name;
  }

  void first_classes() {
    std::map<std::tuple<NodeKind, std::string, std::string, bool, bool, std::size_t>, std::size_t> classes;
    for (std::size_t n = 0; n < class_of_.size(); ++n) {
      const WaitNode& node = waits_.nodes()[n];
      const bool alone = is_suspect(node) || node.missing_rank >= 0;
      const bool child = node.rank && job_.ranks[*node.rank].kind == RankKind::kChild;
      class_of_[n] =
          classes
              .try_emplace({node.kind, node.text, thread_name(node), child, node.rank.has_value(), alone ? n : kNone},
                           classes.size())
              .first->second;
    }
    count_ = classes.size();
  }

  // Returns whether there are more classes than before.
  bool refine() {
    using Wait = std::tuple<analyzers::WaitEvidence, analyzers::Certainty, std::size_t>;
    std::map<std::pair<std::size_t, std::set<Wait>>, std::size_t> classes;
    std::vector<std::size_t> refined(class_of_.size());
    for (std::size_t n = 0; n < class_of_.size(); ++n) {
      std::set<Wait> waits;
      for (const std::size_t e : waits_.edges_from(n)) {
        const WaitEdge& edge = waits_.edges()[e];
        waits.insert({edge.evidence, edge.certainty, class_of_[edge.to]});
      }
      refined[n] = classes.try_emplace({class_of_[n], std::move(waits)}, classes.size()).first->second;
    }
    class_of_ = std::move(refined);
    return std::exchange(count_, classes.size()) != classes.size();
  }

  void make_groups() {
    std::vector<std::size_t> group_of_class(count_, kNone);
    group_of_.assign(class_of_.size(), kNone);
    for (std::size_t n = 0; n < class_of_.size(); ++n) {
      if (waits_.edges_from(n).empty() && waits_.edges_to(n).empty()) continue;
      std::size_t& group = group_of_class[class_of_[n]];
      if (group == kNone) {
        group = made_.groups.size();
        made_.groups.emplace_back();
        first_.push_back(n);
      }
      group_of_[n] = group;
      add(made_.groups[group], waits_.nodes()[n]);
    }
    nodes_.assign(made_.groups.size(), 0);
    for (const std::size_t group : group_of_)
      if (group != kNone) ++nodes_[group];
    for (std::size_t g = 0; g < made_.groups.size(); ++g) {
      WaitGroup& group = made_.groups[g];
      std::sort(group.ranks.begin(), group.ranks.end());
      group.ranks.erase(std::unique(group.ranks.begin(), group.ranks.end()), group.ranks.end());
      group.label = label_of(g);
    }
  }

  void add(WaitGroup& group, const WaitNode& node) const {
    group.kind = node.kind;
    group.suspect = group.suspect || is_suspect(node);
    if (!node.rank) return;
    group.ranks.push_back(*node.rank);
    if (node.thread) group.threads.emplace_back(*node.rank, *node.thread);
  }

  std::string label_of(std::size_t g) const {
    const WaitGroup& group = made_.groups[g];
    const WaitNode& node = waits_.nodes()[first_[g]];
    const bool runs = group.kind == NodeKind::kThread || group.kind == NodeKind::kProcess;
    if (nodes_[g] == 1 || !runs || group.ranks.empty()) {
      std::string text = describe_link(job_, node, std::nullopt);
      if (text.empty()) text = analyzers::to_string(group.kind);
      if (nodes_[g] > 1 && !group.ranks.empty()) text = name_ranks(job_, group.ranks, 6) + ": " + text;
      return sanitize(text);
    }
    const bool children = job_.ranks[group.ranks.front()].kind == RankKind::kChild;
    const std::string who =
        children ? fmt::format("{} child processes", group.ranks.size()) : name_ranks(job_, group.ranks, 6);
    const std::string thread = thread_name(node);
    return sanitize(fmt::format("{}{}{} {}", who, thread.empty() ? "" : ", ", thread, node.text));
  }

  void mark_chains() {
    for (const analyzers::WaitChain& chain : verdict_.chains) {
      std::vector<std::size_t>& passed = made_.chain_groups.emplace_back();
      for (const analyzers::WaitChain::Link& link : chain.links) {
        const std::size_t group = group_of_[link.node];
        passed.push_back(group);
        if (group == kNone) continue;
        made_.groups[group].in_chain = true;
        if (passed.size() > 1) chain_steps_.insert({passed[passed.size() - 2], group});
      }
    }
  }

  void make_edges() {
    std::map<std::tuple<std::size_t, std::size_t, analyzers::WaitEvidence>, std::size_t> seen;
    for (const WaitEdge& edge : waits_.edges()) {
      const std::size_t from = group_of_[edge.from], to = group_of_[edge.to];
      const auto [it, is_new] = seen.try_emplace({from, to, edge.evidence}, made_.edges.size());
      if (is_new) made_.edges.push_back({from, to, edge.evidence, edge.certainty, chain_steps_.contains({from, to})});
      analyzers::Certainty& certainty = made_.edges[it->second].certainty;
      certainty = std::max(certainty, edge.certainty);
    }
  }

  void keep(std::size_t most) {
    if (made_.groups.size() <= most) return;
    std::vector<std::size_t> order(made_.groups.size()), renumbered(made_.groups.size(), kNone);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const WaitGroup &x = made_.groups[a], &y = made_.groups[b];
      return std::tuple(!x.suspect, !x.in_chain, nodes_[b]) < std::tuple(!y.suspect, !y.in_chain, nodes_[a]);
    });
    made_.left_out = order.size() - most;
    order.resize(most);
    std::sort(order.begin(), order.end());
    std::vector<WaitGroup> kept;
    for (const std::size_t g : order) {
      renumbered[g] = kept.size();
      kept.push_back(std::move(made_.groups[g]));
    }
    made_.groups = std::move(kept);
    for (WaitGroupEdge& edge : made_.edges) edge.from = renumbered[edge.from], edge.to = renumbered[edge.to];
    std::erase_if(made_.edges, [](const WaitGroupEdge& edge) { return edge.from == kNone || edge.to == kNone; });
    for (auto& chain : made_.chain_groups)
      for (std::size_t& group : chain) group = group == kNone ? kNone : renumbered[group];
  }

  const JobSnapshot& job_;
  const analyzers::Verdict& verdict_;
  const analyzers::WaitGraph& waits_;
  std::vector<std::size_t> class_of_;       // by node
  std::size_t count_ = 0;                   // of classes
  std::vector<std::size_t> group_of_;       // by node; kNone: it has no edge
  std::vector<std::size_t> first_, nodes_;  // by group: its first node, how many it has
  std::set<std::pair<std::size_t, std::size_t>> chain_steps_;
  WaitGroups made_;
};

}  // namespace

WaitGroups group_waits(const JobSnapshot& job, const analyzers::Analysis& analysis, std::size_t most) {
  return Grouping(job, analysis).groups(most);
}

}  // namespace rankstacks::report
