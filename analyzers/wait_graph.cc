#include "analyzers/wait_graph.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "analyzers/analysis.h"
#include "analyzers/standing.h"
#include "analyzers/waits.h"
#include "model/rank_set.h"

namespace rankstacks {

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

class WaitGraphBuilder {
 public:
  WaitGraphBuilder(const JobSnapshot& job, const std::vector<Standing>& standings, const Waits& waits, WaitGraph& graph)
      : job_(job), standings_(standings), waits_(waits), graph_(graph) {}

  void build() {
    graph_.of_rank_.resize(job_.ranks.size());
    for (const Standing& s : standings_)
      if (!s.stranger && s.readable) graph_.of_rank_[s.rank] = thread(s.rank, leading(s));
    std::vector<std::size_t> operation_of(waits_.classes().size());
    for (std::size_t c = 0; c < waits_.classes().size(); ++c) operation_of[c] = operation(waits_.classes()[c]);
    for (const Standing& s : standings_)
      if (!s.stranger && s.readable && !s.waits()) add_rank(s);
    for (std::size_t c = 0; c < waits_.classes().size(); ++c) add_needs(waits_.classes()[c], operation_of[c], operation_of);   // most edges, so last
    index();
  }

 private:
  static constexpr std::size_t kMaxEdges = 1u << 18;   // of a job in which every rank waits in a place of its own

  std::size_t add(WaitNode node) {
    graph_.nodes_.push_back(std::move(node));
    return graph_.nodes_.size() - 1;
  }
  void connect(std::size_t from, std::size_t to, WaitEvidence evidence, Certainty certainty) {
    if (from != to && graph_.edges_.size() < kMaxEdges) graph_.edges_.push_back({from, to, evidence, certainty});
  }

  const ThreadSnapshot& at(std::size_t rank, std::size_t thread) const { return job_.ranks[rank].threads[thread]; }
  std::optional<std::size_t> index_of(std::size_t rank, Tid tid) {
    const auto& threads = job_.ranks[rank].threads;
    if (!threads.empty() && threads.front().tid == tid) return 0;   // the main thread, which is what is asked for mostly
    const auto [of_rank, is_new] = by_tid_.try_emplace(rank);
    if (is_new)
      for (std::size_t t = 0; t < threads.size(); ++t) of_rank->second.emplace(threads[t].tid, t);
    const auto found = of_rank->second.find(tid);
    return found == of_rank->second.end() ? std::nullopt : std::optional(found->second);
  }
  // The thread that tells for the rank, or its main thread, where that only waits for the one that tells.
  std::size_t leading(const Standing& s) {
    if (s.by_own_thread) return s.doing.thread;
    return index_of(s.rank, job_.ranks[s.rank].pid).value_or(s.doing.thread);
  }

  std::size_t thread(std::size_t rank, std::size_t t) {
    const auto [it, is_new] = threads_.try_emplace({rank, t}, graph_.nodes_.size());
    if (is_new) {
      const std::string place = describe_place(job_, at(rank, t)), block = describe_block(job_, at(rank, t));
      std::string text = place.empty() ? block : "in " + place;
      if (!place.empty() && !block.empty()) text += fmt::format(", {}", block);
      add({.kind = NodeKind::kThread, .rank = rank, .thread = t, .missing_rank = -1, .text = std::move(text)});
    }
    return it->second;
  }
  std::size_t missing(int number) {
    const auto [it, is_new] = missing_.try_emplace(number, graph_.nodes_.size());
    if (is_new) add({.kind = NodeKind::kMissingRank, .rank = {}, .thread = {}, .missing_rank = number, .text = fmt::format("rank {} was not seen", number)});
    return it->second;
  }

  std::size_t unseen(const std::vector<int>& numbers) {
    const auto [it, is_new] = unseen_.try_emplace(numbers, graph_.nodes_.size());
    if (is_new) add({.kind = NodeKind::kRanks, .rank = {}, .thread = {}, .missing_rank = -1, .text = fmt::format("ranks {} were not seen", format_numbers(numbers))});
    return it->second;
  }

  // All members wait in it, each by its thread.
  std::size_t operation(const WaitClass& waiting) {
    const Standing& first = standings_[waiting.members.front()];
    const auto world = static_cast<std::size_t>(job_.ranks[first.rank].world_size.value_or(0));
    const std::size_t node = add({.kind = NodeKind::kOperation, .rank = {}, .thread = {}, .missing_rank = -1, .text = describe_wait(first, world)});
    for (const std::size_t i : waiting.members) {
      const Standing& s = standings_[i];
      const WaitEvidence evidence = s.told_by_gpu ? WaitEvidence::kKernel : s.peer_process ? WaitEvidence::kSystemCall : s.inferred ? WaitEvidence::kOthers : WaitEvidence::kFrame;
      const Certainty certainty = s.inferred || s.gpu_wait_may_be_collective ? Certainty::kPossible : s.doing.by_frame || s.told_by_gpu || s.peer_process ? Certainty::kCertain : Certainty::kLikely;
      connect(of_standing(s), node, evidence, certainty);
    }
    return node;
  }
  // With the edge from its main thread where another one tells.
  std::size_t of_standing(const Standing& s) {
    const std::size_t lead = leading(s), node = thread(s.rank, lead);
    if (lead == s.doing.thread) return node;
    const std::size_t told = thread(s.rank, s.doing.thread);
    const bool joins = at(s.rank, lead).joins == at(s.rank, s.doing.thread).tid;
    connect(node, told, joins ? WaitEvidence::kMemory : WaitEvidence::kFrame, joins ? Certainty::kCertain : Certainty::kLikely);
    return told;
  }

  void add_needs(const WaitClass& waiting, std::size_t node, const std::vector<std::size_t>& operation_of) {
    const WaitEvidence evidence = standings_[waiting.members.front()].peer_process ? WaitEvidence::kSystemCall : waiting.certain ? WaitEvidence::kGroup : WaitEvidence::kOthers;
    const Certainty certainty = waiting.certain ? Certainty::kCertain : Certainty::kLikely;
    // Of a job on many machines most ranks were not looked at.
    constexpr std::size_t kMaxMissing = 64;
    if (waiting.unseen.size() <= kMaxMissing)
      for (const int number : waiting.unseen) connect(node, missing(number), evidence, certainty);
    else
      connect(node, unseen(waiting.unseen), evidence, certainty);
    for (const std::size_t c : waiting.classes) connect(node, operation_of[c], evidence, certainty);
    // Where nothing names them, all classes need the same ranks: these are one node.
    std::size_t from = node;
    if (waiting.elsewhere.size() > 1) {
      const auto [it, is_new] = ranks_.try_emplace(waiting.elsewhere, graph_.nodes_.size());
      if (is_new) {
        std::vector<std::size_t> ranks;
        for (const std::size_t i : waiting.elsewhere) ranks.push_back(standings_[i].rank);
        add({.kind = NodeKind::kRanks, .rank = {}, .thread = {}, .missing_rank = -1, .text = name_ranks(job_, ranks)});
      }
      connect(node, it->second, evidence, certainty);
      if (!is_new) return;
      from = it->second;
    }
    for (const std::size_t i : waiting.elsewhere)
      if (const auto to = graph_.of_rank_[standings_[i].rank]) connect(from, *to, evidence, certainty);
  }

  // What a rank that does not wait for others does.
  void add_rank(const Standing& s) {
    const std::size_t told = of_standing(s);
    if (s.dead_child) {
      connect(told, add({.kind = NodeKind::kProcess, .rank = *s.dead_child, .thread = {}, .missing_rank = -1, .text = "has ended"}), WaitEvidence::kProcess, Certainty::kCertain);
    } else if (s.told_by_child) {
      connect(told, thread(*s.told_by_child, s.child_thread), WaitEvidence::kProcess, Certainty::kLikely);
      add_thread(*s.told_by_child, s.child_thread);
    } else if (s.child) {
      const auto main = index_of(*s.child, job_.ranks[*s.child].pid);
      connect(told, main ? thread(*s.child, *main) : add({.kind = NodeKind::kProcess, .rank = *s.child, .thread = {}, .missing_rank = -1, .text = ""}), WaitEvidence::kProcess, Certainty::kLikely);
      if (main) add_thread(*s.child, *main);
    } else if (s.doing.activity == Activity::kGpuWait && s.gpu.kernel != nullptr) {
      connect(told, add({.kind = NodeKind::kKernel, .rank = s.rank, .thread = {}, .missing_rank = -1, .text = describe_kernel(*s.gpu.kernel)}), WaitEvidence::kKernel, Certainty::kLikely);
    } else {
      add_thread(s.rank, s.doing.thread);
    }
  }

  // What the kernel and the process's memory tell of a thread's wait, and of those that it leads to.
  void add_thread(std::size_t rank, std::size_t t) {
    for (std::optional<std::size_t> next = t; next && seen_.insert({rank, *next}).second;) next = add_wait(rank, *next);
  }

  // The thread that holds what this one waits for; nothing: it holds nothing back, or nobody holds it.
  std::optional<std::size_t> add_wait(std::size_t rank, std::size_t t) {
    const std::size_t node = thread(rank, t);
    const ThreadSnapshot& waiting = at(rank, t);
    if (waiting.lock_owner) {
      const auto owner = index_of(rank, *waiting.lock_owner);
      if (owner) connect_lock(rank, node, fmt::format("a native lock held by thread {}", *waiting.lock_owner), WaitEvidence::kFrame, *owner);
      return owner;
    }
    if (waiting.joins) {
      const auto joined = index_of(rank, *waiting.joins);
      if (joined) connect(node, thread(rank, *joined), WaitEvidence::kMemory, Certainty::kCertain);
      return joined;
    }
    if (waiting.gil == Gil::kWaits) {
      const auto& threads = job_.ranks[rank].threads;
      const auto holder = std::find_if(threads.begin(), threads.end(), [](const ThreadSnapshot& one) { return one.gil == Gil::kHolds; });
      if (holder == threads.end()) return std::nullopt;
      const auto owner = static_cast<std::size_t>(holder - threads.begin());
      connect_lock(rank, node, "the GIL", WaitEvidence::kMemory, owner);
      return owner;
    }
    if (stand_of(job_, waiting) == Stand::kSleeping)
      connect(node, add({.kind = NodeKind::kTimer, .rank = rank, .thread = {}, .missing_rank = -1, .text = "a time that it has set itself"}), WaitEvidence::kSystemCall, Certainty::kCertain);
    else if (waiting.syscall && waiting.syscall->fd_target)
      connect(node, add({.kind = NodeKind::kDescriptor, .rank = rank, .thread = {}, .missing_rank = -1, .text = *waiting.syscall->fd_target}), WaitEvidence::kSystemCall, Certainty::kCertain);
    return std::nullopt;
  }
  void connect_lock(std::size_t rank, std::size_t waiting, std::string name, WaitEvidence evidence, std::size_t owner) {
    const std::size_t lock = add({.kind = NodeKind::kLock, .rank = rank, .thread = {}, .missing_rank = -1, .text = std::move(name)});
    connect(waiting, lock, evidence, Certainty::kCertain);
    connect(lock, thread(rank, owner), WaitEvidence::kMemory, Certainty::kCertain);
  }

  void index() {
    graph_.out_.resize(graph_.nodes_.size());
    graph_.in_.resize(graph_.nodes_.size());
    for (std::size_t e = 0; e < graph_.edges_.size(); ++e) {
      graph_.out_[graph_.edges_[e].from].push_back(e);
      graph_.in_[graph_.edges_[e].to].push_back(e);
    }
    for (auto& edges : graph_.out_)
      std::stable_sort(edges.begin(), edges.end(), [&](std::size_t a, std::size_t b) { return graph_.edges_[a].certainty > graph_.edges_[b].certainty; });
  }

  const JobSnapshot& job_;
  const std::vector<Standing>& standings_;
  const Waits& waits_;
  WaitGraph& graph_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> threads_;
  std::map<std::size_t, std::unordered_map<Tid, std::size_t>> by_tid_;
  std::map<int, std::size_t> missing_;
  std::map<std::vector<std::size_t>, std::size_t> ranks_;
  std::map<std::vector<int>, std::size_t> unseen_;
  std::set<std::pair<std::size_t, std::size_t>> seen_;
};

WaitGraph::WaitGraph(const JobSnapshot& job, const std::vector<Standing>& standings, const Waits& waits) { WaitGraphBuilder(job, standings, waits, *this).build(); }

std::optional<std::size_t> WaitGraph::node_of_rank(std::size_t rank) const { return rank < of_rank_.size() ? of_rank_[rank] : std::nullopt; }

std::optional<std::size_t> WaitGraph::node_of_missing(int rank) const {
  const auto it = std::find_if(nodes_.begin(), nodes_.end(), [&](const WaitNode& node) { return node.kind == NodeKind::kMissingRank && node.missing_rank == rank; });
  return it == nodes_.end() ? std::nullopt : std::optional(static_cast<std::size_t>(it - nodes_.begin()));
}

namespace {

// The edges from the nearest rank that depends on `target`, other than those in `suspects`, to it; where there is none such, from the nearest of these. By breadth, backwards.
std::vector<std::size_t> path_to(const WaitGraph& graph, std::size_t target, const std::set<std::size_t>& suspects) {
  std::vector<std::optional<std::size_t>> next(graph.nodes().size());   // the edge that leads on to the target
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
  constexpr std::size_t kMaxChains = 64;   // as many suspects as a summary names; each costs one pass over the graph
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

}  // namespace rankstacks
