#include "analyzers/children.h"

#include <algorithm>
#include <optional>

#include "analyzers/activity.h"
#include "analyzers/blocking_calls.h"
#include "analyzers/names.h"
#include "analyzers/thread_waits.h"
#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

// A data-loader worker that works: frames of the data set are inside of torch's worker loop. An idle worker waits for
// an index there.
bool is_busy_worker(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    if (is_place(frame, known::Place::kLoaderLoop)) return false;
    if (!known::is_library_file(frame.file.value_or("")) || is_place(frame, known::Place::kLoaderWork)) return true;
  }
  return false;
}

// The thread of a data-loader worker that works: its main thread, or, if that waits for threads of its own that read
// (as in Grain), one of those. std::nullopt if the process is no worker, or idle.
std::optional<std::size_t> busy_thread_of_worker(const JobSnapshot& job, const RankSnapshot& child,
                                                 const std::vector<known::Role>& roles) {
  const auto main = thread_with(child, child.pid);
  if (!main || roles[*main] != known::Role::kDataLoader) return std::nullopt;
  if (is_busy_worker(job, child.threads[*main])) return main;
  for (std::size_t t = 0; t < child.threads.size(); ++t)
    if (roles[t] == known::Role::kDataLoader && is_busy_worker(job, child.threads[t])) return t;
  return std::nullopt;
}

// A child that others wait for. Not one that waits for a child of its own or for work to be given to it (a pool's
// idle worker, a server between two requests, multiprocessing's own helpers).
bool may_be_waited_for(const JobSnapshot& job, const RankSnapshot& child) {
  for (const std::string& word : child.command)
    if (contains(word, "multiprocessing.resource_tracker") || contains(word, "multiprocessing.forkserver"))
      return false;
  for (const ThreadSnapshot& thread : child.threads) {
    if (thread.tid != child.pid) continue;
    const std::string call = blocking_call(job, thread);
    if (call == "wait4" || call == "waitid" || call == "waitpid") return false;
    for (std::size_t i = 0; i < own_frames(job.frames, thread); ++i) {
      const Frame& frame = job.frames[thread.frames[i]];
      if (frame.kind == FrameKind::kPython) return !is_place(frame, known::Place::kNoWork);
    }
  }
  return true;
}

// Whether it reads a pipe, which may be the output of a child.
bool reads_pipe(const ThreadSnapshot& thread) {
  return thread.syscall && thread.syscall->name == "read" && thread.syscall->fd_target &&
         thread.syscall->fd_target->starts_with("pipe:");
}

// Whether it reads the output of a child until that output is closed.
bool reads_output(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(),
                     [&](FrameId id) { return is_place(job.frames[id], known::Place::kChildOutput); });
}

// Whether a dead child can explain why the rank waits. Not if the rank waits for a child to end, because such a wait
// for a dead child returns at once, nor if it reads a child's output: the dead have closed it.
bool may_miss_child(const JobSnapshot& job, const RankState& state) {
  const ThreadSnapshot& thread = job.ranks[state.rank].threads[state.doing.thread];
  const std::string call = blocking_call(job, thread);
  return call != "wait4" && call != "waitid" && call != "waitpid" && !reads_output(job, thread);
}

std::size_t dead_children_of(const JobSnapshot& job, const Families& families, std::size_t rank) {
  const auto children = families.children_of(rank);
  return static_cast<std::size_t>(
      std::count_if(children.begin(), children.end(), [&](std::size_t child) { return is_dead(job.ranks[child]); }));
}

// A child that ended normally and was not waited for leaves the same trace as a worker that died. If ranks that have
// arrived at a collective have as many dead children, this is normal for their common program.
void forget_common_dead_children(const JobSnapshot& job, const Families& families, std::vector<RankState>& states) {
  std::optional<std::size_t> common;
  for (const RankState& s : states)
    if (s.readable && !s.unrelated && known::waits_for_ranks(s.doing.activity))
      common = std::min(common.value_or(SIZE_MAX), dead_children_of(job, families, s.rank));
  for (RankState& s : states)
    if (s.dead_child && common && dead_children_of(job, families, s.rank) <= *common) s.dead_child.reset();
}

void look_at_children_of(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                         const Families& families, RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  const bool may_read_child =
      state.doing.activity == known::Activity::kUserCode && reads_pipe(rank.threads[state.doing.thread]);
  if (may_read_child || state.doing.activity == known::Activity::kSubprocess ||
      state.doing.activity == known::Activity::kCompiling) {
    std::vector<std::size_t>& candidates = state.awaited_children;
    for (const std::size_t c : families.children_of(state.rank)) {
      const RankSnapshot& child = job.ranks[c];
      if (is_dead(child)) continue;
      const bool loads = std::find(roles[c].begin(), roles[c].end(), known::Role::kDataLoader) != roles[c].end();
      if (!loads && may_be_waited_for(job, child)) candidates.push_back(c);
    }
    const bool compiles = state.doing.activity == known::Activity::kCompiling;
    if (candidates.size() == 1 && !compiles) state.child = candidates.front();
    if (may_read_child && !candidates.empty()) state.doing.activity = known::Activity::kSubprocess;
  }
  const known::Activity activity = state.doing.activity;
  if (activity != known::Activity::kDataLoading && activity != known::Activity::kSubprocess &&
      activity != known::Activity::kPythonLock &&
      (activity != known::Activity::kUserCode || !polls_asleep(job, rank.threads[state.doing.thread])))
    return;
  for (const std::size_t c : families.children_of(state.rank)) {
    const RankSnapshot& child = job.ranks[c];
    if (is_dead(child)) {
      if (!state.dead_child && may_miss_child(job, state)) state.dead_child = c;
      state.reads_after_end |= activity == known::Activity::kSubprocess && state.awaited_children.empty() &&
                               reads_output(job, rank.threads[state.doing.thread]);
      continue;
    }
    if (activity != known::Activity::kDataLoading || state.known_from_child) continue;
    if (const auto t = busy_thread_of_worker(job, child, roles[c])) {
      state.known_from_child = c;
      state.child_thread = *t;
    }
  }
}

}  // namespace

bool is_dead(const RankSnapshot& process) {
  const auto ended = [](const Problem& p) { return p.code == ProblemCode::kEnded; };
  // A main thread that has ended is not the end of the process while other threads are alive.
  if (process.status != Status::kFailed)
    return process.threads.size() == 1 &&
           (process.threads.front().state == 'Z' || process.threads.front().state == 'X');
  return process.threads.empty() && std::any_of(process.problems.begin(), process.problems.end(), ended);
}

std::optional<std::size_t> awaited_child(const JobSnapshot& job, const Families& families, const RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  if (!state.readable || state.doing.thread >= rank.threads.size()) return std::nullopt;
  const auto& call = rank.threads[state.doing.thread].syscall;
  if (!call || call->others.size() != 1 || call->own_end) return std::nullopt;
  for (const std::size_t c : families.children_of(state.rank))
    if (job.ranks[c].pid == call->others.front().pid && !is_dead(job.ranks[c]) && !job.ranks[c].threads.empty())
      return c;
  return std::nullopt;
}

MeetingOfChildren meeting_of_children(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                      const Families& families, std::size_t rank) {
  MeetingOfChildren meeting;
  Activities activities(job, roles, families);
  for (const std::size_t c : families.children_of(rank)) {
    const RankSnapshot& child = job.ranks[c];
    if (is_dead(child)) {
      meeting.ended.push_back(c);
      continue;
    }
    const auto main = thread_with(child, child.pid);
    const Doing doing = activities.of_rank(c);
    if (doing.activity != known::Activity::kCollective && !may_be_waited_for(job, child)) continue;
    const bool moves = main && child.threads[*main].motion && child.threads[*main].motion->moved;
    if (doing.activity != known::Activity::kCollective || moves ||
        (meeting.waiting > 0 && !same_call(doing.operation, meeting.operation)))
      return {};
    meeting.operation = doing.operation;
    ++meeting.waiting;
  }
  return meeting;
}

void look_at_children(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                      const Families& families, std::vector<RankState>& states) {
  for (RankState& state : states)
    if (state.readable) look_at_children_of(job, roles, families, state);
  forget_common_dead_children(job, families, states);
}

}  // namespace rankstacks::analyzers
