#include "analyzers/accept_waits.h"

#include <algorithm>
#include <string>

#include "analyzers/gone_ranks.h"
#include "analyzers/names.h"
#include "model/process_key.h"

namespace rankstacks::analyzers {
namespace {

constexpr const char* kCall = "accept";

bool is_accept(std::string_view function) { return function == "accept" || function == "accept4"; }

// In the call, or, if that has a timeout, in a poll() that the interpreter makes before it.
bool accepts(const JobSnapshot& job, const ThreadSnapshot& thread) {
  bool found = thread.syscall && is_accept(thread.syscall->name);
  bool decided = false;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (is_place(frame, known::Place::kServerLoop)) return false;
    if (found || decided) continue;
    const std::string function = frame.function.value_or("");
    if (frame.kind == FrameKind::kPython) {
      decided = true;
      found = function == "accept" && is_place(frame, known::Place::kWait);
    } else if (is_c_library(frame.module)) {
      found = is_accept(public_libc_name(function));
    }
  }
  return found;
}

// It polls a listening socket, and nothing else, while a rank waits at the connection that it has with it already: a
// server would read from that one. (Who waits by epoll reads from what it has accepted, perhaps.)
bool polls_for_more(const JobSnapshot& job, const std::vector<RankState>& states, const RankState& s,
                    const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames)
    if (is_place(job.frames[id], known::Place::kServerLoop)) return false;
  return thread.syscall && thread.syscall->listens && !thread.syscall->name.starts_with("epoll") &&
         std::any_of(states.begin(), states.end(), [&](const RankState& w) { return w.peer_process == s.rank; });
}

bool waits_in_accept(const JobSnapshot& job, const std::vector<RankState>& states, const RankState& s) {
  if (!s.readable || s.unrelated || s.dead_child || s.known_from_child || s.child || s.waits()) return false;
  const known::Activity activity = s.doing.activity;
  if (activity != known::Activity::kNetworkIo && activity != known::Activity::kUserCode &&
      activity != known::Activity::kUnknown)
    return false;
  const ThreadSnapshot& thread = job.ranks[s.rank].threads[s.doing.thread];
  return accepts(job, thread) || polls_for_more(job, states, s, thread);
}

// Whether some thread of the one waits for the other at a socket that they share.
bool is_connected(const RankSnapshot& one, const RankSnapshot& other) {
  return std::any_of(one.threads.begin(), one.threads.end(), [&](const ThreadSnapshot& thread) {
    return thread.syscall &&
           std::any_of(thread.syscall->others.begin(), thread.syscall->others.end(), [&](const OtherEnd& end) {
             return end.kind == EndKind::kSocket && process_key(one, end.pid) == process_key(other);
           });
  });
}

}  // namespace

bool waits_for_connection(const RankState& s) {
  return s.doing.activity == known::Activity::kPeerWait && !s.peer_process && s.doing.operation.call == kCall;
}

void refine_by_accepts(const JobSnapshot& job, std::vector<RankState>& states) {
  std::vector<std::size_t> accepting, elsewhere;
  bool some_wait = false;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const RankState& s = states[i];
    if (s.unrelated) continue;
    some_wait |= s.readable && s.waits();
    if (waits_in_accept(job, states, s)) {
      accepting.push_back(i);
      continue;
    }
    const ThreadSnapshot* thread = s.readable ? &job.ranks[s.rank].threads[s.doing.thread] : nullptr;
    const bool serves = s.doing.operation.kind == known::OperationKind::kEventLoop ||
                        (thread != nullptr && thread->syscall && thread->syscall->listens);
    if (s.ended || (s.readable && !s.waits() && !serves)) elsewhere.push_back(i);
  }
  if (accepting.empty() || !some_wait) return;
  const MissingRanks missing = missing_ranks(job);
  const bool some_absent = !missing.certain.empty() || !missing.alive.empty() || !missing.elsewhere.empty();
  for (const std::size_t i : accepting) {
    RankState& s = states[i];
    const RankSnapshot& rank = job.ranks[s.rank];
    const bool may_connect = std::any_of(elsewhere.begin(), elsewhere.end(), [&](std::size_t e) {
      const RankSnapshot& other = job.ranks[states[e].rank];
      return !is_connected(rank, other) && !is_connected(other, rank);
    });
    if (!may_connect && !some_absent) continue;
    s.doing.activity = known::Activity::kPeerWait;
    s.doing.operation = operation_of_call(known::OperationKind::kProcessPipe, kCall, "accept (a rank's connection)");
    s.doing.by_frame = false;
    s.inferred = false;
  }
}

}  // namespace rankstacks::analyzers
