#include "analyzers/activity.h"

#include <algorithm>
#include <array>

#include "analyzers/blocking_calls.h"
#include "analyzers/driver_calls.h"
#include "analyzers/hook_futures.h"
#include "analyzers/leaf.h"
#include "analyzers/names.h"
#include "analyzers/roles.h"
#include "analyzers/thread_waits.h"
#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

// Whether the thread runs a function that another process has called: torch.distributed.rpc.
bool serves_remote_call(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(),
                     [&](FrameId id) { return is_place(job.frames[id], known::Place::kRemoteCall); });
}

bool has_python(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(),
                     [&](FrameId id) { return job.frames[id].kind == FrameKind::kPython; });
}

// Whether it waits for the end of threads or tasks that its own process (or its pool of workers) runs: Thread.join,
// Future.result, Pool.map.
bool waits_for_tasks(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    if (!known::is_library_file(frame.file.value_or("")))
      return false;  // the innermost code of the user: what it called is what counts
    if (is_place(frame, known::Place::kTask)) return true;
  }
  return false;
}

// A worker process of a pool whose task has not returned.
bool works_for_pool(const JobSnapshot& job, const RankSnapshot& process) {
  for (const ThreadSnapshot& thread : process.threads) {
    if (thread.tid != process.pid) continue;
    const std::size_t own = own_frames(job.frames, thread);
    bool inside = false;  // frames inside of the worker's loop; an idle worker waits in its queue's get
    for (std::size_t i = 0; i < own; ++i) {
      const Frame& frame = job.frames[thread.frames[i]];
      if (frame.kind != FrameKind::kPython) continue;
      if (is_place(frame, known::Place::kProcessQueue) || is_place(frame, known::Place::kProcessPipe)) return false;
      if (is_place(frame, known::Place::kPoolWorker)) return inside || !is_place(frame, known::Place::kPoolLoop);
      inside = true;
    }
  }
  return false;
}

bool has_working_pool(const JobSnapshot& job, const Families& families, std::size_t rank) {
  const auto children = families.children_of(rank);
  return std::any_of(children.begin(), children.end(),
                     [&](std::size_t child) { return works_for_pool(job, job.ranks[child]); });
}

// If several rules match on one stack, all inside of the first wait for ranks: the one nearest to the cause counts.
// Lower is nearer.
int precedence(known::Activity a) {
  switch (a) {
    case known::Activity::kDebugger: return 0;
    case known::Activity::kGarbageCollection: return 1;
    case known::Activity::kException: return 2;
    case known::Activity::kCompiling: return 3;
    case known::Activity::kDataLoading: return 4;
    case known::Activity::kCheckpointIo: return 5;
    case known::Activity::kSubprocess: return 6;
    case known::Activity::kNetworkIo: return 7;
    case known::Activity::kGpuWait: return 8;
    case known::Activity::kAutograd: return 9;
    default: return 10;
  }
}

// What waits for the GPU in the course of this waits for what was launched before, whoever asks for it: a finalizer,
// the copy of a checkpoint's tensors or of a batch.
bool asks_for_gpu_work(known::Activity a) {
  return a == known::Activity::kGarbageCollection || a == known::Activity::kDataLoading ||
         a == known::Activity::kCheckpointIo;
}

// Whether the collector runs a finalizer (as opposed to the end of an object's last reference): such a call passes
// through a function that every CPython exports, so it is recognised even if the collector's own functions have no
// names.
bool run_by_collector(const JobSnapshot& job, const ThreadSnapshot& thread, std::size_t index) {
  const Frame& finalizer = job.frames[thread.frames[index]];
  if (finalizer.kind != FrameKind::kPython || finalizer.function != "__del__" ||
      finalizer.origin != FrameOrigin::kNormal)
    return false;
  std::size_t native = 0;
  for (std::size_t i = index + 1; i < thread.frames.size(); ++i) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (frame.kind == FrameKind::kPython) break;
    if (frame.function &&
        (contains(*frame.function, "CallFinalizerFromDealloc") || contains(*frame.function, "subtype_dealloc")))
      return false;
    ++native;
  }
  constexpr std::size_t kLeast = 3;  // calling it, finalizing all, collecting
  return native >= kLeast;
}
constexpr known::ActivityRule kFinalizerRule{known::ActivityMatch::kPython, "__del__", "",
                                             known::Activity::kGarbageCollection, "cpython Modules/gcmodule.c"};

// Whether there is no Python function inside of this one but the standard library's waits.
bool waits_itself(const JobSnapshot& job, const ThreadSnapshot& thread, std::size_t index) {
  return std::all_of(
      thread.frames.begin(), thread.frames.begin() + static_cast<std::ptrdiff_t>(index), [&](FrameId id) {
        return job.frames[id].kind != FrameKind::kPython || is_place(job.frames[id], known::Place::kWait);
      });
}

// Whether the thread runs a task of a pool of threads, either the user's function or a library's.
bool runs_task(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
    const Frame& frame = job.frames[id];
    return is_users_code(frame) || (frame.kind == FrameKind::kPython && is_place(frame, known::Place::kPoolTask));
  });
}

// Whether the main thread may wait for a thread of this role. by_engine: it waits for the threads of autograd or XLA.
bool may_work_for_main(known::Role role, bool by_engine) {
  if (by_engine) return role == known::Role::kAutograd || role == known::Role::kXla;
  return role == known::Role::kPython || role == known::Role::kCheckpoint || role == known::Role::kDataLoader;
}

// Whether it is clear enough what a thread does that this may stand for its rank.
bool is_clear(const JobSnapshot& job, const ThreadSnapshot& thread, const Doing& doing, bool by_engine) {
  if (!by_engine) return doing.by_frame && doing.activity != known::Activity::kSubprocess;
  return doing.activity != known::Activity::kUnknown && doing.activity != known::Activity::kAutograd &&
         (doing.by_frame || has_python(job, thread) || thread.gil == Gil::kWaits);
}

// Whether the thread runs a task, and it is known what the task does, other than waiting for ranks or a Python lock.
bool is_clear_task(const JobSnapshot& job, const ThreadSnapshot& thread, const Doing& doing) {
  return runs_task(job, thread) && !known::waits_for_ranks(doing.activity) &&
         doing.activity != known::Activity::kUnknown && doing.activity != known::Activity::kPythonLock;
}

std::string called_function(const Frame& frame) {
  if (frame.function->starts_with("PMPI_")) return frame.function->substr(1);
  std::string name = frame.kind == FrameKind::kPython ? *frame.function : short_function(*frame.function);
  if (const std::size_t bracket = name.rfind('('); bracket != std::string::npos && bracket > 0 && name.ends_with(')'))
    name.resize(bracket);
  return name;
}

known::OperationKind kind_of(known::Activity activity) {
  switch (activity) {
    case known::Activity::kCollective: return known::OperationKind::kCollective;
    case known::Activity::kPointToPoint: return known::OperationKind::kMessage;
    case known::Activity::kStoreWait: return known::OperationKind::kStore;
    default: return known::OperationKind::kNone;
  }
}

Operation operation_of(const known::ActivityRule& rule, const Frame& frame) {
  const known::NamedOperation& named = rule.operation;
  const known::OperationKind kind = named.kind != known::OperationKind::kNone ? named.kind : kind_of(rule.activity);
  if (kind == known::OperationKind::kNone) return {};
  Operation operation = operation_of_call(kind, named.call.empty() ? called_function(frame) : std::string(named.call),
                                          std::string(named.name));
  if (named.collective != known::Collective::kUnknown) operation.collective = named.collective;
  operation.generic = named.generic;
  return operation;
}

// mpi4py's collectives of Python objects consist of several calls of MPI: a reduction receives and sends, and then
// broadcasts. They are known by the names of its Cython functions (known/wait_rules.cc), but most distributed builds
// have been stripped. Then the number of mpi4py's own frames tells (3.0 to 4.1): the methods with capitals call MPI
// themselves, a method that sends an object by one function more, and one that reduces by two at least.
bool is_part_of_object_collective(const JobSnapshot& job, const ThreadSnapshot& thread, std::size_t frame) {
  static constexpr std::array<std::string_view, 10> kCollectives = {
      "MPI_Bcast",     "MPI_Gather",     "MPI_Gatherv",  "MPI_Scatter",   "MPI_Scatterv",
      "MPI_Allgather", "MPI_Allgatherv", "MPI_Alltoall", "MPI_Alltoallv", "MPI_Alltoallw"};
  static constexpr std::array<std::string_view, 2> kMessages = {"MPI_Send", "MPI_Recv"};
  const Frame& call = job.frames[thread.frames[frame]];
  if (call.kind != FrameKind::kNative) return false;
  const std::string function = called_function(call);
  const std::size_t least = is_one_of(function, kCollectives) ? 2 : is_one_of(function, kMessages) ? 3 : SIZE_MAX;
  std::size_t own = 0;
  for (std::size_t i = frame + 1; i < thread.frames.size(); ++i, ++own) {
    const Frame& caller = job.frames[thread.frames[i]];
    const std::string_view module = base_name(caller.module);
    if (caller.kind != FrameKind::kNative || caller.function || !module.starts_with("MPI.") || !module.ends_with(".so"))
      break;
  }
  return own >= least;
}

// Python's collector runs whenever enough objects were made. A thread that is in other Python functions in other
// samples is not held up by the collection that one of them has met. (A long one goes through native functions as
// well.)
bool passes_through_collector(const ThreadSnapshot& thread) {
  return thread.motion && thread.motion->travelled && !thread.motion->in_one_function;
}

// What the thread's state shows, or what it waits for, whatever its frames are in the middle of.
std::optional<known::Activity> whatever_its_frames(const JobSnapshot& job, const RankSnapshot& rank,
                                                   std::size_t thread_index) {
  const ThreadSnapshot& thread = rank.threads[thread_index];
  if (thread.state == 'T' || thread.state == 't') return known::Activity::kStopped;
  if (thread.state == 'F') return known::Activity::kFrozen;
  if (is_in_driver_call(job, thread)) return known::Activity::kDriverCall;
  if (thread.collecting && !passes_through_collector(thread)) return known::Activity::kGarbageCollection;
  // What the frames waited for has come, and the thread cannot go on.
  if (waits_for_kept_gil(job, rank, thread_index)) return known::Activity::kPythonLock;
  return std::nullopt;
}

}  // namespace

Reason reason_of(known::Activity activity) {
  switch (activity) {
    case known::Activity::kDataLoading: return Reason::kDataLoading;
    case known::Activity::kCheckpointIo: return Reason::kCheckpointIo;
    case known::Activity::kFileIo: return Reason::kFileIo;
    case known::Activity::kNetworkIo: return Reason::kNetworkIo;
    case known::Activity::kSubprocess: return Reason::kSubprocess;
    case known::Activity::kDebugger: return Reason::kDebugger;
    case known::Activity::kStopped: return Reason::kStopped;
    case known::Activity::kFrozen: return Reason::kFrozen;
    case known::Activity::kCompiling: return Reason::kCompiling;
    case known::Activity::kGpuWait: return Reason::kGpuWait;
    case known::Activity::kGarbageCollection: return Reason::kGarbageCollection;
    case known::Activity::kException: return Reason::kException;
    case known::Activity::kPythonLock: return Reason::kPythonLock;
    case known::Activity::kNativeLock: return Reason::kNativeLock;
    case known::Activity::kUserCode: return Reason::kUserCode;
    default: return Reason::kNone;
  }
}

const known::ActivityRule* RuleCache::of(const FrameTable& frames, FrameId id) {
  const auto [of_frame, is_new_frame] = by_frame_.try_emplace(id);
  if (!is_new_frame) return of_frame->second;
  const Frame& frame = frames[id];
  if (!frame.function) return nullptr;
  if (frame.kind != FrameKind::kNative) return of_frame->second = activity_rule_of(frame);
  const auto [of_function, is_new_function] = by_function_.try_emplace(*frame.function);
  if (is_new_function) of_function->second = activity_rule_of(frame);
  return of_frame->second = of_function->second;
}

// Searches from the innermost frame outwards. A wait for other ranks ends the search: the caller of a collective is
// not what holds it up. A frame of the same operation further out has a better name for it: "recv" rather than
// "UnboundBuffer::waitRecv", "all_gather_object" rather than "all_gather".
Activities::DecidingRule Activities::deciding_rule(const ThreadSnapshot& thread) {
  const known::ActivityRule* best = nullptr;
  std::size_t best_frame = 0;
  bool in_users_code = false;  // the frames so far are called by the user's code, which the frame at hand called back
  const std::size_t own = own_frames(job_.frames, thread);
  for (std::size_t i = 0; i < own; ++i) {
    const known::ActivityRule* rule = rules_.of(job_.frames, thread.frames[i]);
    if (rule && rule->match == known::ActivityMatch::kPythonWaits && !waits_itself(job_, thread, i)) rule = nullptr;
    if (rule && rule->activity == known::Activity::kGarbageCollection && passes_through_collector(thread))
      rule = nullptr;
    if (!rule && run_by_collector(job_, thread, i)) rule = &kFinalizerRule;
    if (!rule) {
      // The operation's own frames end at the first Python frame outside of torch.distributed.
      const Frame& frame = job_.frames[thread.frames[i]];
      if (best && known::waits_for_ranks(best->activity) && frame.kind == FrameKind::kPython &&
          !is_place(frame, known::Place::kOperation))
        break;
      in_users_code |= is_users_code(frame);
      continue;
    }
    if (known::waits_for_ranks(rule->activity)) {
      // broadcast_object_list unpickles an object: what the object's own code does there waits for no rank.
      if (in_users_code && (!best || !known::waits_for_ranks(best->activity))) break;
      const bool inner_is_wait_for_gpu =
          !best || best->activity == known::Activity::kGpuWait || best->activity == known::Activity::kAutograd;
      const bool inner_is_transport =
          best && rule->over_transport &&
          (best->activity == known::Activity::kNetworkIo || best->activity == known::Activity::kSubprocess);
      if (!inner_is_wait_for_gpu && !inner_is_transport && !known::waits_for_ranks(best->activity)) break;
      if (best && known::waits_for_ranks(best->activity)) {
        // The first operation of a communicator sets it up over the store, and is what the other ranks should call too.
        if (best->activity == known::Activity::kStoreWait && rule->activity == known::Activity::kPeerWait) break;
        const bool names_better =
            job_.frames[thread.frames[i]].kind == FrameKind::kPython || best->operation.generic || rule->over_transport;
        if (!names_better || rule->activity == known::Activity::kStoreWait) continue;
      }
      best = rule;
      best_frame = i;
      continue;
    }
    if (best && known::waits_for_ranks(best->activity)) {
      if (job_.frames[thread.frames[i]].kind == FrameKind::kPython) break;  // the operation's own frames end here
      continue;
    }
    if (best && best->activity == known::Activity::kGpuWait && asks_for_gpu_work(rule->activity)) continue;
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
  if (const auto activity = whatever_its_frames(job_, job_.ranks[rank], thread_index)) {
    doing.activity = *activity;
    doing.by_frame = true;
  } else if (const auto frame = remote_call_of(rank, thread_index)) {
    doing.activity = known::Activity::kPeerWait;
    doing.operation = operation_of_kind(known::OperationKind::kRemoteCall, "the answer to a remote call");
    doing.by_frame = true;
    doing.frame = *frame;
  } else if (const DecidingRule decided = deciding_rule(thread); decided.rule != nullptr) {
    if (waits_for_hooks_future(rank, thread_index, decided.frame)) {
      doing.activity = known::Activity::kNativeLock;
      doing.operation = operation_of_kind(known::OperationKind::kHooksFuture, "a future of DDP's communication hook");
      doing.by_frame = true;
      doing.frame = decided.frame;
    } else {
      doing = by_frames(job_.ranks[rank], thread, decided);
    }
  } else {
    doing.thread = thread_index;
    return by_leaf(job_, job_.ranks[rank], thread, doing);
  }
  doing.thread = thread_index;
  return doing;
}

Doing Activities::by_frames(const RankSnapshot& rank, const ThreadSnapshot& thread, const DecidingRule& decided) {
  Doing doing;
  doing.frame = decided.frame;
  doing.activity = decided.rule->activity;
  doing.by_frame = true;
  // A library's log that goes to a full pipe, a topology file on a file server that is gone: within a call for all
  // ranks, but nothing that these could end. (A store may be a file.)
  if ((doing.activity == known::Activity::kCollective || doing.activity == known::Activity::kPointToPoint) &&
      blocked_at_file(job_, thread)) {
    doing.activity = known::Activity::kFileIo;
    return doing;
  }
  doing.operation = operation_of(*decided.rule, job_.frames[thread.frames[doing.frame]]);
  if (is_part_of_object_collective(job_, thread, doing.frame)) {
    doing.activity = known::Activity::kCollective;
    doing.operation = operation_of_call(known::OperationKind::kCollective, "MPI_", "a collective of mpi4py");
    doing.operation.generic = true;
  }
  const auto any_rule = [&](auto holds) {
    return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
      const known::ActivityRule* rule = rules_.of(job_.frames, id);
      return rule != nullptr && holds(*rule);
    });
  };
  doing.in_teardown = main_program_ended(job_, rank, thread) || any_rule([](const known::ActivityRule& rule) {
                        return rule.operation.kind == known::OperationKind::kTeardown;
                      });
  doing.connects =
      doing.activity == known::Activity::kPointToPoint && any_rule([](const known::ActivityRule& rule) {
        return rule.activity == known::Activity::kPointToPoint && rule.operation.kind == known::OperationKind::kSetUp;
      });
  return doing;
}

// A process that takes part in torch.distributed.rpc waits for a future of PyTorch's (rpc_async, wait_all).
std::optional<std::size_t> Activities::remote_call_of(std::size_t rank, std::size_t thread_index) const {
  const ThreadSnapshot& thread = job_.ranks[rank].threads[thread_index];
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    const Frame& frame = job_.frames[thread.frames[i]];
    if (frame.kind == FrameKind::kPython) break;  // what the future's callbacks do
    if (!frame.function || !contains(*frame.function, "torch::jit::PythonFutureWrapper::wait")) continue;
    const std::vector<known::Role>& roles = roles_[rank];
    return std::find(roles.begin(), roles.end(), known::Role::kRpc) == roles.end() ? std::nullopt : std::optional(i);
  }
  return std::nullopt;
}

bool Activities::most_wait_for_buckets() {
  if (most_wait_for_buckets_) return *most_wait_for_buckets_;
  std::size_t ranks = 0, waiting = 0;
  for (const RankSnapshot& rank : job_.ranks) {
    if (rank.kind != RankKind::kRank) continue;
    ++ranks;
    waiting += std::any_of(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& thread) {
      const DecidingRule decided = deciding_rule(thread);
      return decided.rule != nullptr && waits_for_bucket(job_, thread, decided.frame);
    });
  }
  return most_wait_for_buckets_.emplace(waiting * 2 > ranks);
}

bool Activities::waits_for_hooks_future(std::size_t rank, std::size_t thread, std::size_t frame) {
  const RankSnapshot& process = job_.ranks[rank];
  if (!waits_for_bucket(job_, process.threads[thread], frame) || !has_nccl(roles_[rank]) ||
      process.status != Status::kComplete || most_wait_for_buckets())
    return false;
  return std::none_of(process.threads.begin(), process.threads.end(), [&](const ThreadSnapshot& other) {
    const DecidingRule decided = deciding_rule(other);
    return decided.rule != nullptr && decided.rule->activity == known::Activity::kCollective &&
           !waits_for_bucket(job_, other, decided.frame);
  });
}

Doing Activities::of_hooks_future(std::size_t rank, const Doing& waiting) {
  if (waiting.operation.kind != known::OperationKind::kHooksFuture) return waiting;
  const auto setter = setter_of_hooks_future(job_, job_.ranks[rank], waiting.thread);
  if (!setter) return waiting;
  const Doing doing = of_thread(rank, *setter);
  const bool waits_too = doing.activity == known::Activity::kPythonLock || doing.activity == known::Activity::kUnknown;
  return waits_too ? waiting : doing;
}

std::optional<Doing> Activities::of_served_call(std::size_t rank, std::size_t main) {
  const RankSnapshot& r = job_.ranks[rank];
  for (std::size_t t = 0; t < r.threads.size(); ++t) {
    if (t == main || !serves_remote_call(job_, r.threads[t])) continue;
    const Doing served = of_thread(rank, t);
    if (served.activity != known::Activity::kUnknown && !known::waits_for_ranks(served.activity)) return served;
  }
  return std::nullopt;
}

std::optional<Doing> Activities::of_awaited_threads(std::size_t rank, std::size_t main, const Doing& doing) {
  const RankSnapshot& r = job_.ranks[rank];
  const bool by_engine = doing.activity == known::Activity::kAutograd,
             in_event_loop = doing.operation.kind == known::OperationKind::kEventLoop;
  // If the main thread waits for tasks, any thread with the user's code shows what the rank does, provided that all
  // such threads do the same.
  const bool for_tasks = !by_engine && (in_event_loop || waits_for_tasks(job_, r.threads[main]));
  // If set, no other thread counts.
  const Tid joined = doing.activity == known::Activity::kPythonLock ? r.threads[main].joins.value_or(0) : 0;
  std::optional<Doing> found, by_task, collective;
  bool tasks_agree = true;
  for (std::size_t t = 0; t < r.threads.size(); ++t) {
    const known::Role role = roles_[rank][t];
    if (joined != 0 && r.threads[t].tid != joined) continue;
    if (t == main || !may_work_for_main(role, by_engine)) continue;
    const Doing other = of_thread(rank, t);
    // An event loop may await what its pool runs. The other threads have work of their own: rank_state.cc compares
    // them, and if it cannot, a thread in a collective decides.
    if (in_event_loop && !runs_pool_task(job_, r.threads[t])) {
      if (other.activity == known::Activity::kCollective && !collective) collective = other;
      continue;
    }
    const bool task = for_tasks && role == known::Role::kPython && is_clear_task(job_, r.threads[t], other);
    if (task && by_task) tasks_agree = tasks_agree && by_task->activity == other.activity;
    if (task && !by_task) by_task = other;
    if (is_clear(job_, r.threads[t], other, by_engine) &&
        (!found || known::waits_for_ranks(in_event_loop ? other.activity : found->activity) >
                       known::waits_for_ranks(in_event_loop ? found->activity : other.activity)))
      found = other;
  }
  if (found) return found;
  if (by_task && tasks_agree) return by_task;
  if (collective) return collective;
  if (!for_tasks || by_task || !has_working_pool(job_, families_, rank)) return std::nullopt;
  Doing pool = doing;
  pool.activity = known::Activity::kSubprocess;
  return pool;
}

Doing Activities::of_rank(std::size_t rank) {
  const RankSnapshot& r = job_.ranks[rank];
  std::size_t main = r.threads.size();
  for (std::size_t t = 0; t < r.threads.size(); ++t)
    if (r.threads[t].tid == r.pid) main = t;
  if (main == r.threads.size()) return {};
  const Doing doing = of_hooks_future(rank, of_thread(rank, main));
  // It waits for the end of its calls in other ranks, and these may wait for one that it serves.
  if (doing.by_frame && known::waits_for_ranks(doing.activity) &&
      (doing.operation.kind == known::OperationKind::kRemoteCall ||
       is_place(job_.frames[r.threads[main].frames[doing.frame]], known::Place::kRemoteCalls)))
    if (const auto served = of_served_call(rank, main)) return *served;
  const bool by_engine = doing.activity == known::Activity::kAutograd;
  if (!by_engine && doing.operation.kind != known::OperationKind::kEventLoop &&
      doing.activity != known::Activity::kPythonLock)
    return doing;
  // Of the others, the GIL's holder alone keeps it.
  if (const auto wait = thread_wait_of(r, main); !by_engine && wait && wait->what == ThreadWait::For::kGil) {
    const Doing holder = of_thread(rank, wait->thread);
    return is_clear(job_, r.threads[wait->thread], holder, by_engine) ? holder : doing;
  }
  if (const auto found = of_awaited_threads(rank, main, doing)) return of_hooks_future(rank, *found);
  if (!by_engine) return doing;
  // No thread shows what the rank does. A queue of autograd's that is empty while all of its threads are idle is a
  // moment between two tasks.
  Doing unknown;
  unknown.thread = main;
  if (contains(job_.frames[r.threads[main].frames[doing.frame]].function.value_or(""), "ReadyQueue::"))
    return by_leaf(job_, r, r.threads[main], unknown);
  // If there are threads of NCCL, the engine may wait for a collective on the device.
  unknown = doing;
  unknown.activity = has_nccl(roles_[rank]) ? known::Activity::kGpuWait : known::Activity::kUnknown;
  return unknown;
}

}  // namespace rankstacks::analyzers
