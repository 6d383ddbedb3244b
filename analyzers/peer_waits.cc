#include "analyzers/peer_waits.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "analyzers/flight_records.h"
#include "analyzers/names.h"
#include "analyzers/other_ends.h"
#include "analyzers/thread_waits.h"
#include "model/process_key.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

constexpr std::size_t kNone = SIZE_MAX;

// Indices of rank states by their process and by its children, which work for it.
std::map<ProcessKey, std::size_t> states_by_process(const JobSnapshot& job, const std::vector<RankState>& states) {
  std::map<ProcessKey, std::size_t> found;
  for (std::size_t i = 0; i < states.size(); ++i) found.emplace(process_key(job.ranks[states[i].rank]), i);
  for (const RankSnapshot& process : job.ranks) {
    if (process.kind != RankKind::kChild || !process.parent) continue;
    const auto parent = found.find(process_key(process, *process.parent));
    if (parent != found.end()) found.emplace(process_key(process), parent->second);
  }
  return found;
}

bool is_lock(const SyscallInfo& call) {
  return !call.others.empty() &&
         (call.others.front().kind == EndKind::kLock || call.others.front().kind == EndKind::kDatabase);
}

// The thread whose wait is the rank's: its own, or that of the loader worker that it waits for.
const ThreadSnapshot& waiting_thread(const JobSnapshot& job, const RankState& s) {
  return s.known_from_child ? job.ranks[*s.known_from_child].threads[s.child_thread]
                            : job.ranks[s.rank].threads[s.doing.thread];
}

// multiprocessing's pipes and queues are usually between a process and its children, and its frames do not show more:
// a client of a manager or a listener in another rank has the same frames.
bool may_wait_for_a_rank(const JobSnapshot& job, const RankState& s) {
  const known::Activity activity = s.doing.activity;
  // A worker's pipes are for its own rank, a lock is for all.
  if (s.readable && !s.unrelated && !s.dead_child && s.known_from_child)
    if (const auto& call = waiting_thread(job, s).syscall; call && is_lock(*call)) return true;
  if (!s.readable || s.unrelated || s.dead_child || s.known_from_child ||
      (s.doing.by_frame && activity != known::Activity::kSubprocess && activity != known::Activity::kNetworkIo))
    return false;
  if (s.inferred || activity == known::Activity::kSubprocess) return true;  // the other end is better evidence
  return activity == known::Activity::kNetworkIo || activity == known::Activity::kFileIo ||
         activity == known::Activity::kUserCode || activity == known::Activity::kUnknown;
}

// The state at the other end. kNone if there is none or more than one, or if it does not belong to the job.
std::size_t other_end_of(const JobSnapshot& job, const std::map<ProcessKey, std::size_t>& by_process, std::size_t own,
                         const RankState& s) {
  const RankSnapshot& rank = job.ranks[s.rank];
  const auto& call = waiting_thread(job, s).syscall;
  if (!call || call->own_end) return kNone;
  std::size_t found = kNone;
  for (const OtherEnd& end : call->others) {
    const auto of = by_process.find(process_key(rank, end.pid));
    if (end.kind == EndKind::kChild || of == by_process.end() || of->second == own ||
        (found != kNone && found != of->second))
      return kNone;
    found = of->second;
  }
  return found;
}

// The child of `holder` that has the lock for which `s` waits, if all that is known of this child is that it does
// something of its own. std::nullopt if it is the rank itself, or if the child waits for another process.
std::optional<std::size_t> child_with_lock(const JobSnapshot& job, const Families& families, const RankState& s,
                                           const RankState& holder) {
  const SyscallInfo& call = *waiting_thread(job, s).syscall;
  if (!is_lock(call)) return std::nullopt;
  const RankSnapshot& parent = job.ranks[holder.rank];
  if (std::any_of(call.others.begin(), call.others.end(),
                  [&](const OtherEnd& end) { return process_key(job.ranks[s.rank], end.pid) == process_key(parent); }))
    return std::nullopt;
  for (const OtherEnd& end : call.others) {
    for (const std::size_t c : families.children_of(holder.rank)) {
      const RankSnapshot& child = job.ranks[c];
      if (process_key(child) != process_key(job.ranks[s.rank], end.pid)) continue;
      const auto main = thread_with(child, child.pid);
      if (!main) return std::nullopt;
      const auto& does = child.threads[*main].syscall;
      return does && !does->others.empty() ? std::nullopt : std::optional(c);
    }
  }
  return std::nullopt;
}

// "recvfrom (from rank 2)": the call, and the rank at the other end. "a lock of the database cache.db (held by rank
// 2)".
Operation wait_for(const JobSnapshot& job, const SyscallInfo& call, std::size_t rank) {
  if (call.others.front().kind == EndKind::kDatabase)
    return operation_of_call(known::OperationKind::kProcessLock, call.database.value_or("SQLite"),
                             fmt::format("{} (held by {})", database_lock_name(call), name_ranks(job, {rank})));
  const bool is_lock = call.others.front().kind == EndKind::kLock,
             sends = call.name.starts_with("send") || call.name.starts_with("write");
  const std::string who = name_ranks(job, {rank});
  return operation_of_call(is_lock ? known::OperationKind::kProcessLock : known::OperationKind::kProcessPipe, call.name,
                           fmt::format("{} ({} {})", call.name,
                                       is_lock ? "a lock held by"
                                       : sends ? "to"
                                               : "from",
                                       who));
}

// For plain multiprocessing, whose processes no launcher has numbered: a queue, pipe or lock that another of them
// fills or holds. None if the rank does not wait so.
Operation wait_for_peer(const JobSnapshot& job, const ThreadSnapshot& thread) {
  const auto queue = operation_of_kind(known::OperationKind::kProcessQueue, "a multiprocessing queue"),
             pipe = operation_of_kind(known::OperationKind::kProcessPipe, "a multiprocessing pipe"),
             lock = operation_of_kind(known::OperationKind::kProcessLock, "a multiprocessing lock");
  Operation found;
  if (passes_locks(job, thread)) return found;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) {
      if (is_process_lock(frame)) return lock;
      continue;
    }
    if (is_place(frame, known::Place::kProcessQueueWait)) return queue;
    if (is_place(frame, known::Place::kProcessQueue)) return {};
    if (is_place(frame, known::Place::kProcessPipe)) {
      found = pipe;
      continue;  // it may be part of a queue
    }
    if (is_place(frame, known::Place::kProcessLock)) return lock;
    if (found.is_none() && is_place(frame, known::Place::kWait)) continue;  // select, for a get with a timeout
    return found;
  }
  return {};
}

// The members of the groups in which ranks wait by their Flight Recorders.
class RecordedWaits {
 public:
  RecordedWaits(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles)
      : job_(job), roles_(roles) {}

  // Whether the rank waits in a group that is known, and to which none of those belongs.
  bool are_without(const RankState& s, const std::vector<std::size_t>& those, const std::vector<RankState>& states) {
    const auto [found, is_new] = members_.try_emplace(s.rank);
    if (is_new) {
      const std::vector<int> members = members_of_recorded_wait(job_, job_.ranks[s.rank], roles_[s.rank]);
      found->second.insert(members.begin(), members.end());
    }
    return !found->second.empty() && std::all_of(those.begin(), those.end(), [&](std::size_t i) {
      const auto& number = job_.ranks[states[i].rank].rank;
      return number && !found->second.contains(*number);
    });
  }

 private:
  const JobSnapshot& job_;
  const std::vector<std::vector<known::Role>>& roles_;
  std::map<std::size_t, std::set<int>> members_;  // by the index into JobSnapshot::ranks
};

}  // namespace

void find_peer_waits(const JobSnapshot& job, std::vector<RankState>& states) {
  const auto may = [&](const RankState& s) { return s.readable && !s.unrelated && !job.ranks[s.rank].rank; };
  if (std::count_if(states.begin(), states.end(), may) < 2) return;
  for (RankState& s : states) {
    if (!may(s) || known::waits_for_ranks(s.doing.activity) || s.dead_child || known::is_held(s.doing.activity))
      continue;
    Operation wait = wait_for_peer(job, job.ranks[s.rank].threads[s.doing.thread]);
    if (wait.is_none()) continue;
    s.doing.activity = known::Activity::kPeerWait;
    s.doing.operation = std::move(wait);
  }
}

void leave_other_stores(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                        std::vector<RankState>& states) {
  const auto greets = [](const RankState& s) {
    return s.readable && !s.unrelated && s.doing.operation.kind == known::OperationKind::kStoreGreeting;
  };
  if (std::none_of(states.begin(), states.end(), greets)) return;
  const bool one_serves = std::any_of(states.begin(), states.end(), [&](const RankState& s) {
    const auto& own = roles[s.rank];
    return s.readable && !s.unrelated && std::find(own.begin(), own.end(), known::Role::kTcpStore) != own.end();
  });
  const auto by_process = states_by_process(job, states);
  for (RankState& s : states) {
    if (!greets(s)) continue;
    const auto& call = waiting_thread(job, s).syscall;
    if (one_serves && call && !call->own_end && !call->others.empty() &&
        std::none_of(call->others.begin(), call->others.end(), [&](const OtherEnd& end) {
          return by_process.contains(process_key(job.ranks[s.rank], end.pid));
        })) {
      s.doing.activity = known::Activity::kNetworkIo;
      s.doing.operation = {};
    } else {
      s.doing.operation.kind = known::OperationKind::kStore;
    }
  }
}

void refine_by_other_ends(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                          const Families& families, std::vector<RankState>& states) {
  const auto has_other_end = [&](const RankState& s) {
    const auto& call = waiting_thread(job, s).syscall;
    return call && !call->others.empty();
  };
  if (std::none_of(states.begin(), states.end(),
                   [&](const RankState& s) { return may_wait_for_a_rank(job, s) && has_other_end(s); }))
    return;
  const auto by_process = states_by_process(job, states);
  std::vector<std::size_t> next(states.size(), kNone);
  for (std::size_t i = 0; i < states.size(); ++i)
    if (may_wait_for_a_rank(job, states[i])) next[i] = other_end_of(job, by_process, i, states[i]);
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (next[i] == kNone || next[next[i]] != kNone) continue;
    RankState& holder = states[next[i]];
    if (!holder.readable || holder.unrelated || !known::waits_for_ranks(holder.doing.activity)) continue;
    const auto child = child_with_lock(job, families, states[i], holder);
    if (!child) continue;
    holder.doing.activity = known::Activity::kSubprocess;
    holder.doing.operation = {};
    holder.doing.by_frame = false;
    holder.holds_by_child = child;
    holder.awaited_children.push_back(*child);
  }

  // Each chain ends at a rank that does not wait in this way, or in a cycle of ranks that do. The result for a chain
  // holds for all that lead into it.
  enum class Way : std::uint8_t { kUnseen, kOnIt, kHolds, kFails };
  std::vector<Way> ways(states.size(), Way::kUnseen);
  RecordedWaits recorded(job, roles);
  for (std::size_t i = 0; i < states.size(); ++i) {
    std::vector<std::size_t> path;
    std::size_t at = i;
    for (; next[at] != kNone && ways[at] == Way::kUnseen; at = next[at]) {
      ways[at] = Way::kOnIt;
      path.push_back(at);
    }
    if (next[at] == kNone) {
      const bool may_lack_them = states[at].waits() && !recorded.are_without(states[at], path, states);
      ways[at] = may_lack_them || states[at].unrelated ? Way::kFails : Way::kHolds;
    }
    const Way way = ways[at] == Way::kOnIt ? Way::kHolds : ways[at];
    for (const std::size_t on : path) ways[on] = way;
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (next[i] == kNone || ways[i] != Way::kHolds) continue;
    RankState& s = states[i];
    const SyscallInfo& call = *waiting_thread(job, s).syscall;
    s.peer_process = states[next[i]].rank;
    s.doing.activity = known::Activity::kPeerWait;
    s.doing.by_frame = false;
    s.inferred = false;
    s.child.reset();
    s.doing.operation = wait_for(job, call, *s.peer_process);
  }
}

}  // namespace rankstacks::analyzers
