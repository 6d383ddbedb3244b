#include "analyzers/activity.h"

#include <algorithm>

#include "analyzers/leaf.h"
#include "analyzers/names.h"
#include "base/text.h"

namespace rankstacks {
namespace {

// Whether the thread runs a function that another process has called: torch.distributed.rpc.
bool serves_remote_call(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) { return is_place(job.frames[id], Place::kRemoteCall); });
}

bool has_python(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) { return job.frames[id].kind == FrameKind::kPython; });
}

// Whether it waits for the end of threads or tasks that its own process (or its pool of workers) runs: Thread.join,
// Future.result, Pool.map.
bool waits_for_tasks(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    if (!is_library_file(frame.file.value_or(""))) return false;   // the innermost code of the user: what it called is what counts
    if (is_place(frame, Place::kTask)) return true;
  }
  return false;
}

// A worker process of a pool whose task has not returned.
bool works_for_pool(const JobSnapshot& job, const RankSnapshot& process) {
  for (const ThreadSnapshot& thread : process.threads) {
    if (thread.tid != process.pid) continue;
    const std::size_t own = own_frames(job.frames, thread);
    bool inside = false;   // frames inside of the worker's loop; an idle worker waits in its queue's get
    for (std::size_t i = 0; i < own; ++i) {
      const Frame& frame = job.frames[thread.frames[i]];
      if (frame.kind != FrameKind::kPython) continue;
      if (is_place(frame, Place::kProcessQueue) || is_place(frame, Place::kProcessPipe)) return false;
      if (is_place(frame, Place::kPoolWorker)) return inside || !is_place(frame, Place::kPoolLoop);
      inside = true;
    }
  }
  return false;
}

bool any_thread_of(const std::vector<std::vector<Role>>& roles, std::size_t rank, Role role) {
  return std::find(roles[rank].begin(), roles[rank].end(), role) != roles[rank].end();
}

// If several rules match on one stack, all inside of the first wait for ranks: the one nearest to the cause counts.
// Lower is nearer.
int precedence(Activity a) {
  switch (a) {
    case Activity::kDebugger: return 0;
    case Activity::kGarbageCollection: return 1;
    case Activity::kException: return 2;
    case Activity::kCompiling: return 3;
    case Activity::kDataLoading: return 4;
    case Activity::kCheckpointIo: return 5;
    case Activity::kSubprocess: return 6;
    case Activity::kNetworkIo: return 7;
    case Activity::kGpuWait: return 8;
    case Activity::kAutograd: return 9;
    default: return 10;
  }
}

// Whether the collector runs a finalizer (as opposed to the end of an object's last reference): such a call passes
// through a function that every CPython exports, so it is recognised even if the collector's own functions have no
// names.
bool run_by_collector(const JobSnapshot& job, const ThreadSnapshot& thread, std::size_t index) {
  const Frame& finalizer = job.frames[thread.frames[index]];
  if (finalizer.kind != FrameKind::kPython || finalizer.function != "__del__" || finalizer.origin != FrameOrigin::kNormal) return false;
  std::size_t native = 0;
  for (std::size_t i = index + 1; i < thread.frames.size(); ++i) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (frame.kind == FrameKind::kPython) break;
    if (frame.function && (contains(*frame.function, "CallFinalizerFromDealloc") || contains(*frame.function, "subtype_dealloc"))) return false;
    ++native;
  }
  constexpr std::size_t kLeast = 3;   // calling it, finalizing all, collecting
  return native >= kLeast;
}
constexpr ActivityRule kFinalizerRule{ActivityMatch::kPython, "__del__", "", Activity::kGarbageCollection, "cpython Modules/gcmodule.c"};

// Whether the thread runs a task of a pool of threads, either the user's function or a library's.
bool runs_task(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) return false;
    return !is_library_file(frame.file.value_or("<unknown>")) || is_place(frame, Place::kPoolTask);
  });
}

bool runs_pool_task(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) { return is_place(job.frames[id], Place::kPoolTask); });
}

std::string called_function(const Frame& frame) {
  if (frame.function->starts_with("PMPI_")) return frame.function->substr(1);
  std::string name = frame.kind == FrameKind::kPython ? *frame.function : short_function(*frame.function);
  if (const std::size_t bracket = name.rfind('('); bracket != std::string::npos && bracket > 0 && name.ends_with(')')) name.resize(bracket);
  return name;
}

OperationKind kind_of(Activity activity) {
  switch (activity) {
    case Activity::kCollective: return OperationKind::kCollective;
    case Activity::kPointToPoint: return OperationKind::kMessage;
    case Activity::kStoreWait: return OperationKind::kStore;
    default: return OperationKind::kNone;
  }
}

Operation operation_of(const ActivityRule& rule, const Frame& frame) {
  const NamedOperation& named = rule.operation;
  const OperationKind kind = named.kind != OperationKind::kNone ? named.kind : kind_of(rule.activity);
  if (kind == OperationKind::kNone) return {};
  Operation operation = operation_of_call(kind, named.call.empty() ? called_function(frame) : std::string(named.call), std::string(named.name));
  if (named.collective != Collective::kUnknown) operation.collective = named.collective;
  operation.generic = named.generic;
  return operation;
}

}  // namespace

Reason reason_of(Activity activity) {
  switch (activity) {
    case Activity::kDataLoading: return Reason::kDataLoading;
    case Activity::kCheckpointIo: return Reason::kCheckpointIo;
    case Activity::kFileIo: return Reason::kFileIo;
    case Activity::kNetworkIo: return Reason::kNetworkIo;
    case Activity::kSubprocess: return Reason::kSubprocess;
    case Activity::kDebugger: return Reason::kDebugger;
    case Activity::kStopped: return Reason::kStopped;
    case Activity::kCompiling: return Reason::kCompiling;
    case Activity::kGpuWait: return Reason::kGpuWait;
    case Activity::kGarbageCollection: return Reason::kGarbageCollection;
    case Activity::kException: return Reason::kException;
    case Activity::kPythonLock: return Reason::kPythonLock;
    case Activity::kNativeLock: return Reason::kNativeLock;
    case Activity::kUserCode: return Reason::kUserCode;
    default: return Reason::kNone;
  }
}

const ActivityRule* RuleCache::of(const FrameTable& frames, FrameId id) {
  const Frame& frame = frames[id];
  if (!frame.function) return nullptr;
  if (frame.kind == FrameKind::kNative) {
    const auto [it, is_new] = by_function_.try_emplace(*frame.function);
    if (is_new) it->second = activity_rule_of(frame);
    return it->second;
  }
  const auto [it, is_new] = by_frame_.try_emplace(id);
  if (is_new) it->second = activity_rule_of(frame);
  return it->second;
}

// Searches from the innermost frame outwards. A wait for other ranks ends the search: the caller of a collective is
// not what holds it up. A frame of the same operation further out has a better name for it: "recv" rather than
// "UnboundBuffer::waitRecv", "all_gather_object" rather than "all_gather".
Activities::DecidingRule Activities::deciding_rule(const ThreadSnapshot& thread) {
  const ActivityRule* best = nullptr;
  std::size_t best_frame = 0;
  const std::size_t own = own_frames(job_.frames, thread);
  for (std::size_t i = 0; i < own; ++i) {
    const ActivityRule* rule = rules_.of(job_.frames, thread.frames[i]);
    if (!rule && run_by_collector(job_, thread, i)) rule = &kFinalizerRule;
    if (!rule) {
      // The operation's own frames end at the first Python frame outside of torch.distributed.
      const Frame& frame = job_.frames[thread.frames[i]];
      if (best && waits_for_ranks(best->activity) && frame.kind == FrameKind::kPython && !is_place(frame, Place::kOperation)) break;
      continue;
    }
    if (waits_for_ranks(rule->activity)) {
      const bool inner_is_wait_for_gpu = !best || best->activity == Activity::kGpuWait || best->activity == Activity::kAutograd;
      const bool inner_is_transport = best && rule->over_transport && (best->activity == Activity::kNetworkIo || best->activity == Activity::kSubprocess);
      if (!inner_is_wait_for_gpu && !inner_is_transport && !waits_for_ranks(best->activity)) break;
      if (best && waits_for_ranks(best->activity)) {
        if (best->activity == Activity::kStoreWait) break;
        const bool names_better = job_.frames[thread.frames[i]].kind == FrameKind::kPython || best->operation.generic;
        if (!names_better || rule->activity == Activity::kStoreWait) continue;
      }
      best = rule;
      best_frame = i;
      continue;
    }
    if (best && waits_for_ranks(best->activity)) {
      if (job_.frames[thread.frames[i]].kind == FrameKind::kPython) break;   // the operation's own frames end here
      continue;
    }
    if (!best || precedence(rule->activity) < precedence(best->activity)) {
      best = rule;
      best_frame = i;
    }
  }
  return {best, best_frame};
}

Doing Activities::of_thread(std::size_t rank, std::size_t thread_index) {
  const ThreadSnapshot& thread = job_.ranks[rank].threads[thread_index];
  Doing doing;
  doing.thread = thread_index;
  if (thread.state == 'T' || thread.state == 't') {
    doing.activity = Activity::kStopped;
    doing.by_frame = true;
    return doing;
  }
  if (thread.collecting) {
    doing.activity = Activity::kGarbageCollection;
    doing.by_frame = true;
    return doing;
  }
  if (const DecidingRule decided = deciding_rule(thread); decided.rule != nullptr) {
    doing.frame = decided.frame;
    doing.activity = decided.rule->activity;
    doing.by_frame = true;
    doing.operation = operation_of(*decided.rule, job_.frames[thread.frames[doing.frame]]);
    doing.in_teardown = main_program_ended(job_, job_.ranks[rank], thread) || std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
                          const ActivityRule* rule = rules_.of(job_.frames, id);
                          return rule != nullptr && rule->operation.kind == OperationKind::kTeardown;
                        });
    return doing;
  }
  return by_leaf(job_, job_.ranks[rank], thread, doing);
}

Doing Activities::of_rank(std::size_t rank) {
  const RankSnapshot& r = job_.ranks[rank];
  std::size_t main = r.threads.size();
  for (std::size_t t = 0; t < r.threads.size(); ++t)
    if (r.threads[t].tid == r.pid) main = t;
  if (main == r.threads.size()) return {};
  const Doing doing = of_thread(rank, main);

  // If the main thread waits for threads of its own process, these show what the rank does. Of several threads one
  // that waits for ranks comes last, since a helper such as a watchdog may always do so.
  const bool by_autograd = doing.activity == Activity::kAutograd, in_event_loop = doing.operation.kind == OperationKind::kEventLoop;
  if (doing.by_frame && waits_for_ranks(doing.activity) && is_place(job_.frames[r.threads[main].frames[doing.frame]], Place::kRemoteCalls)) {
    // It waits for the end of calls in other ranks, and these calls may wait for one that this rank serves.
    for (std::size_t t = 0; t < r.threads.size(); ++t) {
      if (t == main || !serves_remote_call(job_, r.threads[t])) continue;
      const Doing served = of_thread(rank, t);
      if (served.activity != Activity::kUnknown && !waits_for_ranks(served.activity)) return served;
    }
  }
  if (!by_autograd && !in_event_loop && doing.activity != Activity::kPythonLock) return doing;
  // If the main thread waits for tasks, any thread with the user's code shows what the rank does, provided that all
  // such threads do the same.
  const bool for_tasks = !by_autograd && (in_event_loop || waits_for_tasks(job_, r.threads[main]));
  // If set, no other thread counts.
  const Tid joined = doing.activity == Activity::kPythonLock ? r.threads[main].joins.value_or(0) : 0;
  std::optional<Doing> found, by_task, collective;
  bool tasks_agree = true;
  for (std::size_t t = 0; t < r.threads.size(); ++t) {
    const Role role = roles_[rank][t];
    if (joined != 0 && r.threads[t].tid != joined) continue;
    if (t == main || (by_autograd ? role != Role::kAutograd : role != Role::kPython && role != Role::kCheckpoint && role != Role::kDataLoader)) continue;
    const Doing other = of_thread(rank, t);
    // An event loop may await what its pool runs. The other threads have work of their own: rank_state.cc compares
    // them, and if it cannot, a thread in a collective decides.
    if (in_event_loop && !runs_pool_task(job_, r.threads[t])) {
      if (other.activity == Activity::kCollective && !collective) collective = other;
      continue;
    }
    const bool is_clear = by_autograd ? other.activity != Activity::kUnknown && other.activity != Activity::kAutograd && (other.by_frame || has_python(job_, r.threads[t]))
                                   : other.by_frame && other.activity != Activity::kSubprocess;
    const bool task = for_tasks && role == Role::kPython && runs_task(job_, r.threads[t]) && !waits_for_ranks(other.activity) && other.activity != Activity::kUnknown &&
                      other.activity != Activity::kPythonLock;
    if (task && by_task) tasks_agree = tasks_agree && by_task->activity == other.activity;
    if (task && !by_task) by_task = other;
    if (is_clear && (!found || waits_for_ranks(in_event_loop ? other.activity : found->activity) > waits_for_ranks(in_event_loop ? found->activity : other.activity))) found = other;
  }
  if (found) return *found;
  if (by_task && tasks_agree) return *by_task;
  if (collective) return *collective;
  if (for_tasks && !by_task)
    for (const RankSnapshot& child : job_.ranks)
      if (child.kind == RankKind::kChild && child.parent == r.pid && child.host == r.host && works_for_pool(job_, child)) {
        Doing pool = doing;
        pool.activity = Activity::kSubprocess;
        return pool;
      }
  if (!by_autograd) return doing;
  // No thread shows what the rank does. If there are threads of NCCL, the engine may wait for a collective on the
  // device.
  Doing unknown = doing;
  unknown.activity = any_thread_of(roles_, rank, Role::kNcclWatchdog) ? Activity::kGpuWait : Activity::kUnknown;
  return unknown;
}

}  // namespace rankstacks
