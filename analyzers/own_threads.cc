#include "analyzers/own_threads.h"

#include <algorithm>
#include <map>
#include <set>

#include "analyzers/names.h"
#include "analyzers/place.h"
#include "analyzers/progress.h"
#include "analyzers/roles.h"
#include "analyzers/thread_waits.h"

namespace rankstacks::analyzers {

bool waits_for_own_threads(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.state && *thread.state != 'S') return false;
  if (thread.syscall) return thread.syscall->name == "futex";
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || !is_opaque(frame.module)) return false;
    if (!frame.function) continue;
    const std::string name = public_libc_name(*frame.function);
    if (name == "pthread_join" || name.starts_with("pthread_cond_") || name == "pthread_barrier_wait" ||
        name.starts_with("sem_") || name.starts_with("pthread_clockjoin") || name.starts_with("std::thread::join") ||
        name.starts_with("futex"))
      return true;
  }
  return false;
}

namespace {

// The library that waits: that of the innermost frame outside of the C and C++ libraries. "" if the interpreter
// itself waits, or if it is unknown.
std::string_view waiting_library(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || is_interpreter(frame.module)) return "";
    if (!is_opaque(frame.module)) return frame.module;
  }
  return "";
}

bool has_frame_of(const JobSnapshot& job, const ThreadSnapshot& thread, std::string_view module) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
    return job.frames[id].kind == FrameKind::kNative && job.frames[id].module == module;
  });
}

// Whether the activity is more than an idle wait: a pool's thread waits on a condition variable as well.
bool is_conclusive(const JobSnapshot& job, const ThreadSnapshot& thread, const Doing& doing) {
  if (doing.activity == known::Activity::kUnknown) return false;
  return doing.activity != known::Activity::kUserCode || !waits_for_own_threads(job, thread);
}

}  // namespace

std::optional<Doing> of_awaited_thread(const JobSnapshot& job, Activities& activities, std::size_t rank,
                                       const Doing& main) {
  const bool on_lock = main.activity == known::Activity::kPythonLock || main.activity == known::Activity::kNativeLock;
  const bool is_clear =
      !on_lock &&
      (main.by_frame || (main.activity != known::Activity::kUserCode && main.activity != known::Activity::kUnknown));
  // The library's own frames join the thread that saves or loads: Orbax's wait for the end of a checkpoint.
  const bool by_helper =
      main.activity == known::Activity::kCheckpointIo || main.activity == known::Activity::kDataLoading;
  if (is_clear && !by_helper) return std::nullopt;
  const RankSnapshot& process = job.ranks[rank];
  const std::vector<ThreadWait> way = thread_waits_from(process, main.thread);
  if (way.empty()) return std::nullopt;
  const bool in_circle = thread_wait_of(process, way.back().thread).has_value();
  if (Doing last = activities.of_thread(rank, way.back().thread); !in_circle && known::waits_for_ranks(last.activity))
    return last;
  if (is_clear) return std::nullopt;
  std::optional<Doing> joined;
  for (const ThreadWait& wait : way) {
    if (wait.what != ThreadWait::For::kEnd) break;
    Doing doing = activities.of_thread(rank, wait.thread);
    if (is_conclusive(job, process.threads[wait.thread], doing)) joined = std::move(doing);
  }
  return joined;
}

std::optional<Doing> of_called_library(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                       Activities& activities, std::size_t rank, const Doing& main) {
  const RankSnapshot& process = job.ranks[rank];
  const bool is_clear =
      main.by_frame || (main.activity != known::Activity::kUserCode && main.activity != known::Activity::kUnknown);
  const ThreadSnapshot& waiting = process.threads[main.thread];
  if (is_clear || !process.python_version || !waits_for_own_threads(job, waiting)) return std::nullopt;
  if (waiting.joins) return std::nullopt;  // see of_awaited_thread
  const std::string_view library = waiting_library(job, waiting);
  if (library.empty()) return std::nullopt;
  std::optional<Doing> found;
  for (std::size_t t = 0; t < process.threads.size(); ++t) {
    const ThreadSnapshot& thread = process.threads[t];
    const known::Role role = roles[rank][t];
    // The threads of a library's pool call the user's Python functions, as XLA's do for pure_callback.
    const bool may_be_called =
        role == known::Role::kNative || role == known::Role::kPython || runs_users_code(job, thread);
    if (t == main.thread || !may_be_called || is_idle(job, thread, role) || !has_frame_of(job, thread, library))
      continue;
    Doing doing = activities.of_thread(rank, t);
    if (!is_conclusive(job, thread, doing)) continue;
    if (found && found->activity != doing.activity) return std::nullopt;
    if (!found) found = std::move(doing);
  }
  return found;
}

namespace {

bool main_threads_are_alike(const std::vector<Cluster>& clusters, const std::map<std::size_t, std::size_t>& state_of) {
  return std::any_of(clusters.begin(), clusters.end(), [&](const Cluster& cluster) {
    return cluster.role == known::Role::kMain && std::all_of(state_of.begin(), state_of.end(), [&](const auto& one) {
             return std::binary_search(cluster.ranks.begin(), cluster.ranks.end(), one.first);
           });
  });
}

// A thread that every rank has is not background if it makes progress in one of them: what it does in each rank is
// then what the rank does.
void refine_by_motion(const JobSnapshot& job, const std::vector<Cluster>& clusters,
                      const std::map<std::size_t, std::size_t>& state_of, Activities& activities,
                      std::vector<RankState>& states) {
  std::map<std::size_t, std::size_t> most_active;  // by rank: its most active thread
  bool some_move = false;
  for (const Cluster& cluster : clusters) {
    if (cluster.role != known::Role::kNative) continue;
    for (const auto& [rank, thread] : cluster.members) {
      const auto& motion = job.ranks[rank].threads[thread].motion;
      if (!state_of.contains(rank) || !motion || is_idle(job, job.ranks[rank].threads[thread], cluster.role)) continue;
      some_move = some_move || motion->moved;
      const auto [it, is_first] = most_active.try_emplace(rank, thread);
      const auto& best = job.ranks[rank].threads[it->second].motion;
      if (!is_first && std::pair(motion->moved, motion->runs) > std::pair(best->moved, best->runs)) it->second = thread;
    }
  }
  if (!some_move) return;
  for (const auto& [rank, thread] : most_active) states[state_of.at(rank)].doing = activities.of_thread(rank, thread);
}

// Whether every rank has a thread that its main thread joins, and these all do the same.
bool are_joined_alike(const JobSnapshot& job, const std::vector<RankState>& states,
                      const std::map<std::size_t, std::size_t>& state_of) {
  const Doing& first = states[state_of.begin()->second].doing;
  return std::all_of(state_of.begin(), state_of.end(), [&](const auto& one) {
    const Doing& doing = states[one.second].doing;
    return doing.thread != thread_with(job.ranks[one.first], job.ranks[one.first].pid) &&
           doing.activity == first.activity && doing.operation.key() == first.operation.key();
  });
}

// A main thread in a call that takes a lock waits for who holds that, and for no thread that works for it.
bool takes_lock(const Doing& main) { return main.activity == known::Activity::kNativeLock; }

// The states by rank index, if the main threads of all ranks only wait for threads of their own, or for a lock
// (`on_locks`: the ranks of these, which have no entry). These states then have what the main thread does, regardless
// of what a joined thread does: a main thread joins the threads of a pool one after the other, and it is chance which
// of them has the task. Empty if the job is not like this, or if there is nothing to compare.
std::map<std::size_t, std::size_t> states_that_join(const JobSnapshot& job, const std::vector<Cluster>& clusters,
                                                    Activities& activities, std::vector<RankState>& states,
                                                    std::set<std::size_t>& on_locks) {
  std::map<std::size_t, std::size_t> state_of;
  std::map<std::size_t, Doing> own;  // what main threads do, by state, if another thread decides
  for (std::size_t i = 0; i < states.size(); ++i) {
    const RankState& s = states[i];
    if (s.unrelated || !s.readable) continue;
    const RankSnapshot& rank = job.ranks[s.rank];
    const auto main = thread_with(rank, rank.pid);
    if (!main || rank.python_version || known::waits_for_ranks(s.doing.activity) ||
        !waits_for_own_threads(job, rank.threads[*main]))
      return {};
    const Doing& doing = s.doing.thread == *main ? s.doing : own.emplace(i, activities.of_rank(s.rank)).first->second;
    if (doing.by_frame ||
        (doing.activity != known::Activity::kUserCode && doing.activity != known::Activity::kNativeLock &&
         doing.activity != known::Activity::kUnknown))
      return {};
    if (takes_lock(doing)) on_locks.insert(s.rank);
    else state_of.emplace(s.rank, i);
  }
  if (state_of.size() < 2 ||
      (!own.empty() && (!main_threads_are_alike(clusters, state_of) || are_joined_alike(job, states, state_of))))
    return {};
  for (auto& [i, doing] : own) states[i].doing = std::move(doing);
  return state_of;
}

}  // namespace

void refine_by_classes(const JobSnapshot& job, const std::vector<Cluster>& clusters, Activities& activities,
                       std::vector<RankState>& states) {
  std::set<std::size_t> on_locks;
  const std::map<std::size_t, std::size_t> state_of = states_that_join(job, clusters, activities, states, on_locks);
  if (state_of.empty()) return;

  struct OwnThread {
    int cluster = -1;
    std::size_t thread = 0;
  };
  std::map<std::size_t, OwnThread> own_threads;  // by state
  for (const Cluster& cluster : clusters) {
    if (cluster.role != known::Role::kNative && cluster.role != known::Role::kPython) continue;
    const std::set<std::size_t> ranks(cluster.ranks.begin(), cluster.ranks.end());
    if (std::all_of(state_of.begin(), state_of.end(), [&](const auto& one) { return ranks.contains(one.first); }) &&
        std::includes(ranks.begin(), ranks.end(), on_locks.begin(), on_locks.end()))
      continue;
    for (const auto& [rank, thread] : cluster.members)
      if (const auto it = state_of.find(rank);
          it != state_of.end() && !is_idle(job, job.ranks[rank].threads[thread], cluster.role))
        own_threads.try_emplace(it->second, OwnThread{cluster.id, thread});
  }
  if (own_threads.size() != state_of.size()) {  // some rank has no thread of its own kind
    refine_by_motion(job, clusters, state_of, activities, states);
    return;
  }

  std::map<int, std::vector<std::size_t>> classes;
  for (const auto& [i, own] : own_threads) {
    classes[own.cluster].push_back(i);
    states[i].doing = activities.of_thread(states[i].rank, own.thread);
  }
  const auto largest = std::max_element(classes.begin(), classes.end(),
                                        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (largest->second.size() * 2 <= state_of.size()) return;
  for (const auto& [cluster, members] : classes) {
    if (cluster == largest->first) continue;
    for (const std::size_t i : members) {
      const ThreadSnapshot& thread = job.ranks[states[i].rank].threads[states[i].doing.thread];
      const auto& motion = thread.motion;
      // A thread that wakes up again and again is not stuck, whatever place the samples found it at.
      if (motion && (motion->moved || motion->counted || is_busy(thread) || motion->runs >= motion->samples)) return;
    }
  }
  for (const std::size_t i : largest->second) {
    Doing& doing = states[i].doing;
    if (known::waits_for_ranks(doing.activity)) continue;
    doing.activity = known::Activity::kPeerWait;
    const ThreadSnapshot& thread = job.ranks[states[i].rank].threads[doing.thread];
    const auto place = deciding_frame(job, thread);
    doing.operation = operation_of_call(known::OperationKind::kUnnamed,
                                        place ? short_function(*job.frames[thread.frames[*place]].function) : "",
                                        place ? "" : "a wait");
    doing.by_frame = false;
    states[i].inferred = true;
  }
}

}  // namespace rankstacks::analyzers
