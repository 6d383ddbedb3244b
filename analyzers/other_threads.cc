#include "analyzers/other_threads.h"

#include <algorithm>
#include <vector>

#include "analyzers/activity_rules.h"
#include "analyzers/hook_futures.h"
#include "analyzers/local_waits.h"
#include "analyzers/names.h"
#include "analyzers/native_waits.h"
#include "analyzers/thread_waits.h"

namespace rankstacks::analyzers {

namespace {

bool is_known_work(const Frame& frame) {
  if (is_place(frame, known::Place::kEventLoop)) return true;
  const known::ActivityRule* rule = activity_rule_of(frame);
  if (rule == nullptr) return false;
  using A = known::Activity;
  return rule->activity == A::kNetworkIo || rule->activity == A::kSubprocess || rule->activity == A::kFileIo ||
         rule->activity == A::kCheckpointIo || rule->activity == A::kDataLoading;
}

const Frame* innermost_of_user(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames)
    if (is_users_code(job.frames[id])) return &job.frames[id];
  return nullptr;
}

// Whether that thread of the rank waits for another one of its process, and memory does not say which.
bool waits_for_some_thread(const JobSnapshot& job, const RankState& state, std::size_t thread) {
  RankState waiting;
  waiting.rank = state.rank;
  waiting.doing.thread = thread;
  if (const auto wait = local_wait_of(job, waiting, Reason::kPythonLock)) return !is_between_processes(wait->kind);
  bool is_innermost = true;
  for (const FrameId id : job.ranks[state.rank].threads[thread].frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    if (is_innermost && !is_place(frame, known::Place::kWait)) return false;
    if (is_place(frame, known::Place::kEventLoop)) return true;
    is_innermost = false;
  }
  return false;
}

}  // namespace

OtherThreads other_threads(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting) {
  OtherThreads others;
  std::vector<std::size_t> in_user_code, in_known_work;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const ThreadSnapshot& thread = rank.threads[t];
    if (t == waiting) continue;
    if (thread.stack_end != StackEnd::kComplete) {
      others.any_python = true;  // as far as is known
      continue;
    }
    bool user_code = false, known_work = false;
    for (const FrameId id : thread.frames) {
      const Frame& frame = job.frames[id];
      if (frame.kind != FrameKind::kPython) continue;
      others.any_python = true;
      user_code |= is_users_code(frame);
      known_work |= is_known_work(frame);
    }
    if (user_code) in_user_code.push_back(t);
    if (known_work) in_known_work.push_back(t);
  }
  if (in_user_code.size() == 1) others.in_user_code = in_user_code.front();
  if (in_user_code.empty() && in_known_work.size() == 1) others.in_known_work = in_known_work.front();
  return others;
}

std::optional<std::size_t> awaited_other_thread(const JobSnapshot& job, const RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  if (state.doing.operation.kind == known::OperationKind::kHooksFuture)
    return setter_of_hooks_future(job, rank, state.doing.thread);
  if (const auto circle = circle_behind_native_wait(job, state); !circle.empty()) return circle.front();
  if (state.doing.activity != known::Activity::kPythonLock || rank.status != Status::kComplete ||
      thread_wait_of(rank, state.doing.thread))
    return std::nullopt;
  const auto wait = local_wait_of(job, state, Reason::kPythonLock);
  if (wait && is_between_processes(wait->kind)) return std::nullopt;
  const OtherThreads others = other_threads(job, rank, state.doing.thread);
  return others.in_user_code ? others.in_user_code : others.in_known_work;
}

std::optional<std::size_t> awaited_helper(const JobSnapshot& job, const RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  const known::Activity activity = state.doing.activity;
  if ((activity != known::Activity::kDataLoading && activity != known::Activity::kCheckpointIo) ||
      !state.doing.by_frame || rank.status != Status::kComplete)
    return std::nullopt;
  std::vector<std::size_t> way{state.doing.thread};
  for (const ThreadWait& wait : thread_waits_from(rank, state.doing.thread)) way.push_back(wait.thread);
  if (!waits_for_some_thread(job, state, way.back())) return std::nullopt;
  std::optional<std::size_t> in_user_code, with_task;
  bool are_alike = true, is_only_task = true;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    if (std::find(way.begin(), way.end(), t) != way.end()) continue;
    if (const Frame* place = innermost_of_user(job, rank.threads[t])) {
      const Frame* first = in_user_code ? innermost_of_user(job, rank.threads[*in_user_code]) : place;
      are_alike &= place->function == first->function && place->file == first->file;
      if (!in_user_code) in_user_code = t;
    } else if (runs_pool_task(job, rank.threads[t])) {
      is_only_task &= !with_task;
      with_task = t;
    }
  }
  if (in_user_code) return are_alike ? in_user_code : std::nullopt;
  return is_only_task ? with_task : std::nullopt;
}

std::optional<std::size_t> serving_thread_of(const JobSnapshot& job, std::size_t rank) {
  const RankSnapshot& process = job.ranks[rank];
  const auto main = thread_with(process, process.pid);
  if (!main) return std::nullopt;
  const auto& frames = process.threads[*main].frames;
  const auto innermost =
      std::find_if(frames.begin(), frames.end(), [&](FrameId id) { return job.frames[id].kind == FrameKind::kPython; });
  if (innermost == frames.end() || !is_place(job.frames[*innermost], known::Place::kWait)) return main;
  const auto serving = other_threads(job, process, *main).in_user_code;
  return serving ? serving : main;
}

}  // namespace rankstacks::analyzers
