#include "analyzers/native_waits.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "analyzers/names.h"
#include "analyzers/own_threads.h"
#include "analyzers/progress.h"
#include "analyzers/roles.h"
#include "analyzers/thread_waits.h"
#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

// POSIX threads; std::thread::join is libstdc++'s.
constexpr std::array<std::pair<std::string_view, NativeWait>, 10> kCalls = {{
    {"pthread_cond_wait", NativeWait::kCondition},
    {"pthread_cond_timedwait", NativeWait::kCondition},
    {"pthread_cond_clockwait", NativeWait::kCondition},
    {"sem_wait", NativeWait::kSemaphore},
    {"sem_timedwait", NativeWait::kSemaphore},
    {"sem_clockwait", NativeWait::kSemaphore},
    {"pthread_barrier_wait", NativeWait::kBarrier},
    {"pthread_join", NativeWait::kThreadEnd},
    {"pthread_clockjoin_ex", NativeWait::kThreadEnd},
    {"pthread_timedjoin_np", NativeWait::kThreadEnd},
}};

NativeWait wait_in(std::string_view function) {
  const auto* const call =
      std::find_if(kCalls.begin(), kCalls.end(), [&](const auto& c) { return c.first == function; });
  return call == kCalls.end() ? NativeWait::kNone : call->second;
}

// It waits in code of its own, as far as is known, and no rule says for what.
bool may_wait_alone(const RankState& s) {
  return s.readable && !s.unrelated && !s.doing.by_frame && !s.dead_child && !s.known_from_child &&
         (s.doing.activity == known::Activity::kUserCode || s.doing.activity == known::Activity::kUnknown);
}

// Its main thread waits for another thread, and all others are idle.
bool waits_alone(const JobSnapshot& job, const std::vector<known::Role>& roles, const RankState& s) {
  const RankSnapshot& rank = job.ranks[s.rank];
  const ThreadSnapshot& main = rank.threads[s.doing.thread];
  const NativeWait wait = native_wait_of(job, main);
  if (main.tid != rank.pid || wait == NativeWait::kNone || wait == NativeWait::kThreadEnd || main.lock_owner)
    return false;
  for (std::size_t t = 0; t < rank.threads.size(); ++t)
    if (t != s.doing.thread && !is_idle(job, rank.threads[t], roles[t])) return false;
  return true;
}

}  // namespace

NativeWait native_wait_of(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (!waits_for_own_threads(job, thread)) return NativeWait::kNone;
  NativeWait found = NativeWait::kNone;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || is_interpreter(frame.module)) return NativeWait::kNone;
    if (!is_opaque(frame.module)) break;
    if (const NativeWait wait = frame.function ? wait_in(public_libc_name(*frame.function)) : NativeWait::kNone;
        wait != NativeWait::kNone)
      found = wait;
  }
  return found;
}

void refine_by_lone_waits(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                          std::vector<RankState>& states) {
  std::map<std::string, std::vector<std::size_t>> places;
  std::size_t compared = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const RankState& s = states[i];
    if (s.unrelated) continue;
    ++compared;
    if (may_wait_alone(s) && waits_alone(job, roles[s.rank], s)) places[place_key(job, s)].push_back(i);
  }
  const auto most = std::max_element(places.begin(), places.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most == places.end() || most->second.size() * 2 <= compared || most->second.size() == compared) return;
  for (const std::size_t i : most->second) {
    Doing& doing = states[i].doing;
    const ThreadSnapshot& thread = job.ranks[states[i].rank].threads[doing.thread];
    const auto place = deciding_frame(job, thread);
    doing.activity = known::Activity::kPeerWait;
    doing.operation = operation_of_call(known::OperationKind::kUnnamed,
                                        place ? short_function(*job.frames[thread.frames[*place]].function) : "",
                                        place ? "" : "a wait");
    states[i].inferred = true;
  }
}

bool stands_in_futex(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (!thread.syscall || thread.syscall->name != "futex" || !waits_for_own_threads(job, thread) || thread.python_lock ||
      thread.gil == Gil::kWaits)
    return false;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative) return false;  // what Python has called is not known
    if (!is_opaque(frame.module)) return !is_interpreter(frame.module);
  }
  return false;
}

namespace {

// A wait that ends by itself after some time.
bool has_time_limit(const JobSnapshot& job, const ThreadSnapshot& thread) {
  constexpr std::array<std::string_view, 4> kTimed = {"pthread_cond_timedwait", "pthread_cond_clockwait",
                                                      "sem_timedwait", "sem_clockwait"};
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
    const Frame& frame = job.frames[id];
    return frame.kind == FrameKind::kNative && frame.function && is_one_of(public_libc_name(*frame.function), kTimed);
  });
}

// A thread of the rank's own work that computes or gets on, as far as is known.
bool others_may_work(const JobSnapshot& job, const std::vector<known::Role>& roles, const RankState& s) {
  const RankSnapshot& rank = job.ranks[s.rank];
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const ThreadSnapshot& thread = rank.threads[t];
    if (t == s.doing.thread || is_idle(job, thread, roles[t])) continue;
    if (!thread.syscall && (!thread.state || thread.state == 'R')) return true;
    if (thread.motion && (thread.motion->moved || thread.motion->counted || is_busy(thread))) return true;
  }
  return false;
}

}  // namespace

void refine_by_native_wait(const JobSnapshot& job, const std::vector<known::Role>& roles, RankState& state) {
  if (!state.readable || state.doing.by_frame || state.doing.activity != known::Activity::kUserCode ||
      state.progress == Progress::kMoves || state.counts || state.dead_child || state.known_from_child)
    return;
  const RankSnapshot& rank = job.ranks[state.rank];
  const ThreadSnapshot& thread = rank.threads[state.doing.thread];
  const bool known_call = native_wait_of(job, thread) != NativeWait::kNone;
  if (!known_call && !stands_in_futex(job, thread)) return;
  const bool still = state.progress == Progress::kStill;
  // Some other thread wakes it again and again, and what it waits for has not come; or a core shows one moment only.
  const bool woken = state.progress == Progress::kRuns && known_call && !state.busy && !has_time_limit(job, thread);
  const bool in_core = state.progress == Progress::kUnknown && rank.source == Source::kCore;
  if (!still && !woken && !in_core) return;
  if (!(still && known_call) && others_may_work(job, roles, state)) return;
  // A thread that is joined, and that sleeps or computes in code of its own, is what keeps the rank.
  const std::vector<ThreadWait> way = thread_waits_from(rank, state.doing.thread);
  if (!way.empty()) {
    const ThreadSnapshot& last = rank.threads[way.back().thread];
    if (native_wait_of(job, last) == NativeWait::kNone && !stands_in_futex(job, last)) return;
  }
  state.doing.activity = known::Activity::kNativeLock;
}

std::vector<std::size_t> circle_behind_native_wait(const JobSnapshot& job, const RankState& state) {
  if (!state.readable || state.doing.activity != known::Activity::kNativeLock || state.doing.by_frame) return {};
  const RankSnapshot& rank = job.ranks[state.rank];
  if (thread_wait_of(rank, state.doing.thread)) return {};
  std::vector<std::size_t> found;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const std::vector<ThreadWait> way = thread_waits_from(rank, t);
    const auto back = thread_wait_of(rank, way.empty() ? t : way.back().thread);
    if (!back || back->thread != t || std::find(found.begin(), found.end(), t) != found.end()) continue;
    if (!found.empty()) return {};
    found.push_back(t);
    for (const ThreadWait& wait : way) found.push_back(wait.thread);
  }
  return found;
}

}  // namespace rankstacks::analyzers
