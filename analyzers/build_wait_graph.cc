#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "analyzers/other_threads.h"
#include "analyzers/pending_operations.h"
#include "analyzers/place.h"
#include "analyzers/python_locks.h"
#include "analyzers/rank_state.h"
#include "analyzers/thread_waits.h"
#include "analyzers/wait_graph.h"
#include "model/process_key.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {

class WaitGraphBuilder {
 public:
  WaitGraphBuilder(const JobSnapshot& job, const std::vector<RankState>& states,
                   const std::vector<PendingOperation>& operations, WaitGraph& graph)
      : job_(job), states_(states), operations_(operations), graph_(graph) {}

  void build() {
    graph_.of_rank_.resize(job_.ranks.size());
    graph_.operation_of_.resize(job_.ranks.size());
    for (const RankState& s : states_) {
      if (s.unrelated) continue;
      if (s.readable) graph_.of_rank_[s.rank] = thread(s.rank, leading(s));
      else if (s.ended) graph_.of_rank_[s.rank] = ended(s.rank);
    }
    for (std::size_t r = 0; r < job_.ranks.size(); ++r)
      if (job_.ranks[r].kind == RankKind::kChild) children_.emplace(process_key(job_.ranks[r]), r);
    for (const PendingOperation& operation : operations_) graph_.operations_.push_back(add_operation(operation));
    for (const RankState& s : states_)
      if (!s.unrelated && s.readable && !s.waits()) add_rank(s);
    for (std::size_t o = 0; o < operations_.size(); ++o) add_needs(operations_[o], graph_.operations_[o]);
    graph_.index();
  }

 private:
  static constexpr std::size_t kMaxEdges = 1u << 18;  // for a job in which every rank waits at a different place

  std::size_t add(WaitNode node) {
    graph_.nodes_.push_back(std::move(node));
    return graph_.nodes_.size() - 1;
  }
  void connect(std::size_t from, std::size_t to, WaitEvidence evidence, Certainty certainty) {
    if (from != to) graph_.edges_.push_back({from, to, evidence, certainty});
  }

  const ThreadSnapshot& at(std::size_t rank, std::size_t thread) const { return job_.ranks[rank].threads[thread]; }
  std::optional<std::size_t> main_of(std::size_t rank) const {
    return thread_with(job_.ranks[rank], job_.ranks[rank].pid);
  }
  // The thread that shows what the rank does; the main thread if that only waits for it.
  std::size_t leading(const RankState& s) {
    if (s.by_own_thread) return s.doing.thread;
    return main_of(s.rank).value_or(s.doing.thread);
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
  std::size_t ended(std::size_t rank) {
    return add({.kind = NodeKind::kProcess, .rank = rank, .thread = {}, .missing_rank = -1, .text = "has ended"});
  }
  std::size_t process(std::size_t rank) {
    return add({.kind = NodeKind::kProcess, .rank = rank, .thread = {}, .missing_rank = -1, .text = ""});
  }
  std::size_t missing(int number) {
    const auto [it, is_new] = missing_.try_emplace(number, graph_.nodes_.size());
    if (is_new)
      add({.kind = NodeKind::kMissingRank,
           .rank = {},
           .thread = {},
           .missing_rank = number,
           .text = fmt::format("rank {} was not seen", number)});
    return it->second;
  }

  std::size_t unseen(const std::vector<int>& numbers) {
    const auto [it, is_new] = unseen_.try_emplace(numbers, graph_.nodes_.size());
    if (is_new)
      add({.kind = NodeKind::kRanks,
           .rank = {},
           .thread = {},
           .missing_rank = -1,
           .text = fmt::format("ranks {} were not seen", format_numbers(numbers))});
    return it->second;
  }

  // All members wait in the operation, each with its thread.
  std::size_t add_operation(const PendingOperation& waiting) {
    const RankState& first = states_[representative_of(waiting, states_)];
    const auto world = static_cast<std::size_t>(job_.ranks[first.rank].world_size.value_or(0));
    const std::size_t node = add({.kind = NodeKind::kOperation,
                                  .rank = {},
                                  .thread = {},
                                  .missing_rank = -1,
                                  .text = describe_wait(first, world)});
    for (const std::size_t i : waiting.members) {
      const RankState& s = states_[i];
      const WaitEvidence evidence = s.known_from_gpu ? WaitEvidence::kKernel
                                    : s.peer_process ? WaitEvidence::kSystemCall
                                    : s.timed_out    ? WaitEvidence::kMemory
                                    : s.inferred     ? WaitEvidence::kOthers
                                                     : WaitEvidence::kFrame;
      const Certainty certainty = s.timed_out                                              ? Certainty::kLikely
                                  : s.inferred || s.gpu_wait_may_be_collective             ? Certainty::kPossible
                                  : s.doing.by_frame || s.known_from_gpu || s.peer_process ? Certainty::kCertain
                                                                                           : Certainty::kLikely;
      connect(of_state(s), node, evidence, certainty);
      graph_.operation_of_[s.rank] = node;
    }
    return node;
  }
  // Adds the edges from the main thread if another thread shows what the rank does.
  std::size_t of_state(const RankState& s) {
    const std::size_t lead = leading(s), deciding = s.doing.thread;
    const std::size_t node = thread(s.rank, deciding);
    if (s.known_from_child && s.peer_process) {  // its worker waits for that rank
      const std::size_t worker = thread(*s.known_from_child, s.child_thread);
      connect(node, worker, WaitEvidence::kProcess, Certainty::kLikely);
      return worker;
    }
    if (lead == deciding) return node;
    const auto waits = thread_waits_from(job_.ranks[s.rank], lead);
    if (std::any_of(waits.begin(), waits.end(), [&](const ThreadWait& wait) { return wait.thread == deciding; }))
      connect_threads(s.rank, lead, deciding);
    else connect(thread(s.rank, lead), node, WaitEvidence::kFrame, Certainty::kLikely);
    return node;
  }

  void add_needs(const PendingOperation& waiting, std::size_t node) {
    const WaitEvidence evidence = states_[waiting.members.front()].peer_process ? WaitEvidence::kSystemCall
                                  : waiting.certain                             ? WaitEvidence::kGroup
                                                                                : WaitEvidence::kOthers;
    const Certainty certainty = waiting.certain ? Certainty::kCertain : Certainty::kLikely;
    // In a job on many machines most ranks were not captured.
    constexpr std::size_t kMaxMissing = 64;
    if (waiting.unseen.size() <= kMaxMissing)
      for (const int number : waiting.unseen) connect(node, missing(number), evidence, certainty);
    else connect(node, unseen(waiting.unseen), evidence, certainty);
    if (graph_.edges_.size() + waiting.operations.size() > kMaxEdges)
      connect(node, all_operations(), evidence, certainty);
    else
      for (const std::size_t o : waiting.operations) connect(node, graph_.operations_[o], evidence, certainty);
    // If the needed ranks are not named, all operations need the same ones, which are one node.
    std::size_t from = node;
    if (waiting.elsewhere.size() > 1) {
      const auto [it, is_new] = ranks_.try_emplace(waiting.elsewhere, graph_.nodes_.size());
      if (is_new) {
        std::vector<std::size_t> ranks;
        for (const std::size_t i : waiting.elsewhere) ranks.push_back(states_[i].rank);
        add({.kind = NodeKind::kRanks, .rank = {}, .thread = {}, .missing_rank = -1, .text = name_ranks(job_, ranks)});
      }
      connect(node, it->second, evidence, certainty);
      if (!is_new) return;
      from = it->second;
    }
    for (const std::size_t i : waiting.elsewhere)
      if (const auto to = graph_.of_rank_[states_[i].rank]) connect(from, *to, evidence, certainty);
  }

  // Used instead of an edge to each rank if there are too many of them.
  std::size_t all_operations() {
    if (!all_operations_) {
      all_operations_ = add({.kind = NodeKind::kRanks,
                             .rank = {},
                             .thread = {},
                             .missing_rank = -1,
                             .text = "the ranks that wait in other operations"});
      for (const std::size_t operation : graph_.operations_)
        connect(*all_operations_, operation, WaitEvidence::kOthers, Certainty::kLikely);
    }
    return *all_operations_;
  }

  // Of a live process the kernel reports which child it is.
  bool names_other_ends(const RankState& s) const {
    const auto& call = at(s.rank, s.doing.thread).syscall;
    return call && !call->others.empty();
  }
  // Adds what a rank that does not wait for others does.
  void add_rank(const RankState& s) {
    const std::size_t waiting = of_state(s);
    if (s.dead_child) {
      connect(waiting, ended(*s.dead_child), WaitEvidence::kProcess, Certainty::kCertain);
    } else if (s.holds_by_child) {
      const auto main = main_of(*s.holds_by_child);
      connect(waiting, main ? thread(*s.holds_by_child, *main) : process(*s.holds_by_child), WaitEvidence::kSystemCall,
              Certainty::kCertain);
      if (main) add_thread(*s.holds_by_child, *main);
    } else if (s.known_from_child) {
      connect(waiting, thread(*s.known_from_child, s.child_thread), WaitEvidence::kProcess, Certainty::kLikely);
      add_thread(*s.known_from_child, s.child_thread);
    } else if (s.child && !names_other_ends(s)) {
      const auto serving = serving_thread_of(job_, *s.child);
      connect(waiting, serving ? thread(*s.child, *serving) : process(*s.child), WaitEvidence::kProcess,
              Certainty::kLikely);
      if (serving) add_thread(*s.child, *serving);
    } else if (s.doing.activity == known::Activity::kGpuWait && s.gpu.kernel != nullptr) {
      connect(waiting,
              add({.kind = NodeKind::kKernel,
                   .rank = s.rank,
                   .thread = {},
                   .missing_rank = -1,
                   .text = describe_kernel(*s.gpu.kernel)}),
              WaitEvidence::kKernel, Certainty::kLikely);
    } else if (const auto helper = awaited_helper(job_, s)) {
      const std::size_t last = connect_threads(s.rank, s.doing.thread);
      connect(thread(s.rank, last), thread(s.rank, *helper), WaitEvidence::kOthers, Certainty::kPossible);
      add_thread(s.rank, *helper);
    } else {
      add_thread(s.rank, s.doing.thread);
      if (const auto other = awaited_other_thread(job_, s)) {
        connect(waiting, thread(s.rank, *other), WaitEvidence::kOthers, Certainty::kPossible);
        add_thread(s.rank, *other);
      }
    }
  }

  // Adds what the kernel and the process's memory show about a thread's wait, and about the waits that it leads to.
  void add_thread(std::size_t rank, std::size_t t) { add_end(rank, connect_threads(rank, t)); }

  // Adds the edges from this thread through those that it waits for, up to `last`, or to where the chain ends.
  // Returns the last thread.
  std::size_t connect_threads(std::size_t rank, std::size_t t, std::optional<std::size_t> last = std::nullopt) {
    while (t != last && seen_.insert({rank, t}).second) {
      const auto wait = thread_wait_of(job_.ranks[rank], t);
      if (!wait) return t;
      const std::size_t from = thread(rank, t), to = thread(rank, wait->thread);
      switch (wait->what) {
        case ThreadWait::For::kEnd: connect(from, to, WaitEvidence::kMemory, Certainty::kCertain); break;
        case ThreadWait::For::kPythonLock: connect_python_lock(rank, t, from, wait->thread, to); break;
        case ThreadWait::For::kNativeLock:
          connect_lock(rank, from, fmt::format("a native lock held by thread {}", at(rank, wait->thread).tid),
                       WaitEvidence::kFrame, to);
          break;
        case ThreadWait::For::kGil: connect_lock(rank, from, "the GIL", WaitEvidence::kMemory, to); break;
      }
      t = wait->thread;
    }
    return t;
  }
  void connect_python_lock(std::size_t rank, std::size_t waiting, std::size_t from, std::size_t owner, std::size_t to) {
    const PythonLock& lock = *at(rank, waiting).python_lock;
    const Certainty held = lock.kind == PythonLockKind::kLock ? Certainty::kLikely : Certainty::kCertain;
    connect_lock(rank, from, fmt::format("{} held by thread {}", describe_lock(lock), at(rank, owner).tid),
                 WaitEvidence::kMemory, to, held);
  }
  // `held`: how certain it is that the owner holds the lock.
  void connect_lock(std::size_t rank, std::size_t waiting, std::string name, WaitEvidence evidence, std::size_t owner,
                    Certainty held = Certainty::kCertain) {
    const std::size_t lock =
        add({.kind = NodeKind::kLock, .rank = rank, .thread = {}, .missing_rank = -1, .text = std::move(name)});
    connect(waiting, lock, evidence, Certainty::kCertain);
    connect(lock, owner, WaitEvidence::kMemory, held);
  }
  // For a thread that does not wait for another thread of its process: a time, a descriptor, another process.
  void add_end(std::size_t rank, std::size_t t) {
    const ThreadSnapshot& waiting = at(rank, t);
    if (thread_wait_of(job_.ranks[rank], t) || !ends_.insert({rank, t}).second) return;
    const std::size_t from = thread(rank, t);
    if (run_state_of(job_, waiting) == RunState::kSleeping)
      connect(from,
              add({.kind = NodeKind::kTimer,
                   .rank = rank,
                   .thread = {},
                   .missing_rank = -1,
                   .text = "a time that it has set itself"}),
              WaitEvidence::kSystemCall, Certainty::kCertain);
    else if (waiting.lock_owner)  // the owner is not among the threads
      connect(from,
              add({.kind = NodeKind::kLock,
                   .rank = rank,
                   .thread = {},
                   .missing_rank = -1,
                   .text = fmt::format("a native lock held by thread {}, which has ended", *waiting.lock_owner)}),
              WaitEvidence::kMemory, Certainty::kCertain);
    else if (waiting.syscall) add_other_ends(rank, from, *waiting.syscall);
  }
  // The descriptor, and the processes at its other end: this rank's children, with what they wait for themselves, and
  // processes outside of the job. Waits for other ranks are found in peer_waits.h.
  void add_other_ends(std::size_t rank, std::size_t from, const SyscallInfo& call) {
    if (call.fd_target) {
      const std::size_t descriptor =
          add({.kind = NodeKind::kDescriptor, .rank = rank, .thread = {}, .missing_rank = -1, .text = *call.fd_target});
      connect(from, descriptor, WaitEvidence::kSystemCall, Certainty::kCertain);
      from = descriptor;
    }
    for (const OtherEnd& end : call.others) {
      // All processes that hold a lock are in the way; of the processes at a pipe's end, any may act.
      const Certainty certainty =
          call.others.size() == 1 || end.kind == EndKind::kLock ? Certainty::kCertain : Certainty::kPossible;
      if (!end.command.empty()) {
        const auto [it, is_new] = outside_.try_emplace(process_key(job_.ranks[rank], end.pid), graph_.nodes_.size());
        if (is_new)
          add({.kind = NodeKind::kProcess,
               .rank = {},
               .thread = {},
               .missing_rank = -1,
               .text = fmt::format("pid {} ({})", end.pid, end.command)});
        connect(from, it->second, WaitEvidence::kSystemCall, certainty);
      } else if (const auto child = child_with(rank, end.pid)) {
        const auto serving = serving_thread_of(job_, *child);
        connect(from, serving ? thread(*child, *serving) : process(*child), WaitEvidence::kSystemCall, certainty);
        if (serving) add_thread(*child, *serving);
      }
    }
  }
  // The node of the rank that `process` is, or is a child of.
  std::optional<std::size_t> child_with(std::size_t process, Pid pid) const {
    const RankSnapshot& of = job_.ranks[process];
    const auto child = children_.find(process_key(of, pid));
    if (child == children_.end()) return std::nullopt;
    return job_.ranks[child->second].parent == (of.kind == RankKind::kChild ? of.parent : std::optional(of.pid))
               ? std::optional(child->second)
               : std::nullopt;
  }

  const JobSnapshot& job_;
  const std::vector<RankState>& states_;
  const std::vector<PendingOperation>& operations_;
  WaitGraph& graph_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> threads_;
  std::map<int, std::size_t> missing_;
  std::map<std::vector<std::size_t>, std::size_t> ranks_;
  std::map<std::vector<int>, std::size_t> unseen_;
  // By host and pid: indices of ranks; nodes of processes outside of the job.
  std::map<ProcessKey, std::size_t> children_, outside_;
  std::set<std::pair<std::size_t, std::size_t>> seen_, ends_;  // threads whose edges have been added
  std::optional<std::size_t> all_operations_;
};

WaitGraph::WaitGraph(const JobSnapshot& job, const std::vector<RankState>& states,
                     const std::vector<PendingOperation>& operations) {
  WaitGraphBuilder(job, states, operations, *this).build();
}

}  // namespace rankstacks::analyzers
