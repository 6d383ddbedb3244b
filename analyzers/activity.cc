#include "analyzers/activity.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "analyzers/names.h"

namespace rankstacks {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

template <std::size_t N>
bool is_one_of(std::string_view text, const std::array<std::string_view, N>& list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

constexpr std::array<std::string_view, 47> kFileCalls = {
    "read",     "write",    "pread",     "pwrite",    "pread64",  "pwrite64", "readv",     "writev",    "preadv",          "pwritev",  "preadv2",
    "pwritev2", "open",     "openat",    "openat2",   "creat",    "close",    "fsync",     "fdatasync", "sync",            "syncfs",   "sync_file_range",
    "stat",     "lstat",    "fstat",     "newfstatat", "statx",   "access",   "faccessat", "getdents",  "getdents64",      "unlink",   "unlinkat",
    "rename",   "renameat", "renameat2", "mkdir",     "mkdirat",  "flock",    "fallocate", "truncate",  "copy_file_range", "ftruncate", "msync",
    "fcntl",    "fcntl64",  "lockf"};
constexpr std::array<std::string_view, 13> kSocketCalls = {"connect", "accept", "accept4", "recv", "recvfrom", "recvmsg", "recvmmsg",
                                                           "send",    "sendto", "sendmsg", "sendmmsg", "getpeername", "shutdown"};
constexpr std::array<std::string_view, 4> kWaitCalls = {"wait4", "waitid", "waitpid", "wait"};
constexpr std::array<std::string_view, 9> kMutexCalls = {"pthread_mutex_lock",   "lll_lock_wait",         "pthread_rwlock_rdlock",    "pthread_rwlock_wrlock", "pthread_mutex_timedlock",
                                                         "pthread_spin_lock", "pthread_mutex_clocklock", "lll_lock_wait_private", "pthread_mutex_cond_lock"};
constexpr std::array<std::string_view, 4> kPollCalls = {"poll", "ppoll", "select", "pselect6"};
constexpr std::array<std::string_view, 4> kSleepCalls = {"nanosleep", "clock_nanosleep", "sleep", "usleep"};

const SyscallInfo* syscall_of(const ThreadSnapshot& thread) { return thread.syscall ? &*thread.syscall : nullptr; }

}  // namespace

std::string blocking_call(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (const SyscallInfo* call = syscall_of(thread)) return call->name;
  std::string name;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || !is_c_library(frame.module)) break;
    if (frame.function) name = public_libc_name(*frame.function);
  }
  return name;
}

namespace {

// Functions of the C library on the innermost run, by their public names.
bool on_top(const JobSnapshot& job, const ThreadSnapshot& thread, bool (*matches)(std::string_view)) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || !is_opaque(frame.module)) return false;
    if (frame.function && matches(public_libc_name(*frame.function))) return true;
  }
  return false;
}

bool is_regular_path(const std::string& target) {
  return target.starts_with('/') && !target.starts_with("/dev/") && !target.starts_with("/proc/") && !target.starts_with("/memfd:");
}
bool is_network(const std::string& target) { return target.starts_with("tcp") || target.starts_with("udp") || target.starts_with("unix") || target.starts_with("socket"); }

// SQLite polls for a lock that another process has: all that the kernel sees is a sleep. Its own functions seldom have names.
bool waits_for_database(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (!is_one_of(blocking_call(job, thread), kSleepCalls)) return false;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative) return false;
    if (!is_opaque(frame.module)) return contains(base_name(frame.module), "sqlite");
  }
  return false;
}

// asyncio's loop, asleep until a socket, a timer or a thread of its pool wakes it. What its tasks await is on no stack.
bool waits_in_event_loop(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind == FrameKind::kNative && frame.function == "uv__io_poll") return true;
    if (frame.kind != FrameKind::kPython) continue;
    if (is_place(frame, Place::kLoopWait)) continue;
    return is_place(frame, Place::kEventLoop) && thread.state != 'R' && !thread.gil;
  }
  return false;
}

// Runs a function that another process has called: torch.distributed.rpc.
bool serves_remote_call(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) { return is_place(job.frames[id], Place::kRemoteCall); });
}

bool has_python(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) { return job.frames[id].kind == FrameKind::kPython; });
}

// Python's locks by frames: the lock's C function on top of the stack, or threading's own waits innermost.
std::optional<std::size_t> python_lock_frame(const JobSnapshot& job, const ThreadSnapshot& thread) {
  static constexpr std::array<std::string_view, 9> kLockFunctions = {"PyThread_acquire_lock_timed", "PyThread_acquire_lock", "take_gil",       "lock_PyThread_acquire_lock", "rlock_acquire",
                                                                     "_PyMutex_LockTimed",          "_PySemaphore_Wait",     "acquire_timed", "_PyParkingLot_Park"};
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (frame.kind == FrameKind::kPython) {
      if (is_place(frame, Place::kLock)) return i;
      return std::nullopt;
    }
    if (frame.function && is_one_of(without_suffixes(*frame.function), kLockFunctions)) return i;
    if (is_process_lock(frame)) return i;
    if (!is_opaque(frame.module) && !is_interpreter(frame.module)) return std::nullopt;
  }
  return std::nullopt;
}

// Waits for the end of threads or tasks that its own process (or its pool of workers) runs: Thread.join, Future.result, Pool.map.
bool waits_for_tasks(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    if (!is_library_file(frame.file.value_or(""))) return false;   // the innermost code of the user: what it called is what counts
    if (is_place(frame, Place::kTask)) return true;
  }
  return false;
}

// A worker process of a pool whose task has not come back.
bool works_for_pool(const JobSnapshot& job, const RankSnapshot& process) {
  for (const ThreadSnapshot& thread : process.threads) {
    if (thread.tid != process.pid) continue;
    const std::size_t own = own_frames(job.frames, thread);
    bool inside = false;   // something stands inside of the worker's loop; an idle worker waits in its queue's get
    for (std::size_t i = 0; i < own; ++i) {
      const Frame& frame = job.frames[thread.frames[i]];
      if (frame.kind != FrameKind::kPython) continue;
      if (is_place(frame, Place::kProcessQueue) || is_place(frame, Place::kProcessPipe)) return false;
      if (is_place(frame, Place::kPoolWorker)) return inside || frame.function != "worker";
      inside = true;
    }
  }
  return false;
}

bool any_thread_of(const std::vector<std::vector<Role>>& roles, std::size_t rank, Role role) {
  return std::find(roles[rank].begin(), roles[rank].end(), role) != roles[rank].end();
}

// Of several matches on one stack, all inside of the first wait for ranks: the one nearest the cause. Lower is nearer.
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

// Whether the main program of an interpreter has ended: what it runs now was called by none of its modules' code but by the interpreter
// itself: sys.excepthook, a function of atexit. So it is seen where CPython has no symbols of its own. A greenlet's frames have their own outermost
// one, outside of which further calls of the interpreter's loop stand, those of the greenlet that it was started from.
bool main_program_ended(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread) {
  if (thread.tid != rank.pid) return false;
  const Frame* root = nullptr;
  bool by_interpreter = false;   // the stack reaches outwards to the interpreter's own main function
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind == FrameKind::kPython) {
      if (frame.origin != FrameOrigin::kNormal) return false;
      root = &frame;
      by_interpreter = false;
    } else if (root != nullptr && frame.function && frame.function->starts_with("_PyEval_EvalFrameDefault")) {
      return false;
    } else if (frame.function == "Py_RunMain" || frame.function == "Py_BytesMain" || frame.function == "Py_Main") {
      by_interpreter = true;
    }
  }
  return root != nullptr && by_interpreter && root->function != "<module>" && !is_library_file(root->file.value_or("<unknown>"));
}

// A finalizer that the collector runs, rather than the end of an object's last reference: that passes through a function that every
// CPython exports, so that it is seen where the collector's own functions have no names.
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

// Runs a task of a pool of threads, be it the user's function or a library's.
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

// What the system call, the state and the innermost frames tell where no rule did.
Doing by_leaf(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread, Doing doing) {
  const SyscallInfo* call = syscall_of(thread);
  const std::string name = blocking_call(job, thread);
  const std::string target = call && call->fd_target ? *call->fd_target : "";

  if (main_program_ended(job, rank, thread)) return doing.activity = Activity::kException, doing;
  if (call && call->name == "read" && call->fd == 0) return doing.activity = Activity::kDebugger, doing;
  if (is_one_of(name, kWaitCalls)) return doing.activity = Activity::kSubprocess, doing;
  if (is_one_of(name, kSocketCalls) || (is_one_of(name, kPollCalls) && is_network(target))) return doing.activity = Activity::kNetworkIo, doing;
  if (is_one_of(name, kFileCalls)) {
    // By name alone (a core without descriptors) a read may be of a pipe or a socket: only calls that take a path, or sync, are files for sure.
    const bool always_file = name != "read" && name != "write" && name != "readv" && name != "writev" && name != "close";
    if (is_network(target)) return doing.activity = Activity::kNetworkIo, doing;
    if (is_regular_path(target) || (target.empty() && always_file) || thread.state == 'D') return doing.activity = Activity::kFileIo, doing;
  }
  if (writes_output(thread)) return doing.activity = Activity::kFileIo, doing;
  if (thread.state == 'D') return doing.activity = name == "ioctl" ? Activity::kGpuWait : Activity::kFileIo, doing;
  if (thread.gil == Gil::kWaits) return doing.activity = Activity::kPythonLock, doing;
  if (waits_for_database(job, thread)) {
    doing.activity = Activity::kFileIo;
    doing.operation = operation_of_kind(OperationKind::kLockedDatabase, "a locked SQLite database");
    return doing;
  }
  if (waits_in_event_loop(job, thread)) {
    doing.activity = Activity::kNetworkIo;
    doing.operation = operation_of_kind(OperationKind::kEventLoop, "its event loop");
    return doing;
  }
  if (const auto frame = python_lock_frame(job, thread)) {
    doing.activity = Activity::kPythonLock;
    doing.frame = *frame;
    return doing;
  }
  if (on_top(job, thread, [](std::string_view f) { return is_one_of(f, kMutexCalls); })) return doing.activity = Activity::kNativeLock, doing;

  const auto place = telling_frame(job, thread);
  if (!place) return doing;   // nothing but unknown frames
  const bool python_place = job.frames[thread.frames[*place]].kind == FrameKind::kPython;
  // Native frames alone do not tell what a Python program does, nor does a stack that ended early: a collective may be what is missing.
  if (!python_place && (rank.python_version || thread.stack_end != StackEnd::kComplete)) return doing;
  doing.activity = Activity::kUserCode;
  doing.frame = *place;
  return doing;
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
  // From the inside out. A wait for other ranks ends the search: what called the collective is not what keeps it. A frame of the same
  // operation further out names it better: "recv" than "UnboundBuffer::waitRecv", "all_gather_object" than "all_gather".
  const ActivityRule* best = nullptr;
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
      doing.frame = i;
      continue;
    }
    if (best && waits_for_ranks(best->activity)) {
      if (job_.frames[thread.frames[i]].kind == FrameKind::kPython) break;   // the operation's own frames end here
      continue;
    }
    if (!best || precedence(rule->activity) < precedence(best->activity)) {
      best = rule;
      doing.frame = i;
    }
  }
  if (best) {
    doing.activity = best->activity;
    doing.by_frame = true;
    doing.operation = operation_of(*best, job_.frames[thread.frames[doing.frame]]);
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

  // A main thread that waits for threads of its own process: they tell. Of several, one that waits for ranks last, since a watchdog-like
  // helper may always do so.
  const bool by_autograd = doing.activity == Activity::kAutograd, in_event_loop = doing.operation.kind == OperationKind::kEventLoop;
  if (doing.by_frame && waits_for_ranks(doing.activity) && is_place(job_.frames[r.threads[main].frames[doing.frame]], Place::kRemoteCalls)) {
    // It waits for the others' calls to end; they may wait for one that this rank serves.
    for (std::size_t t = 0; t < r.threads.size(); ++t) {
      if (t == main || !serves_remote_call(job_, r.threads[t])) continue;
      const Doing served = of_thread(rank, t);
      if (served.activity != Activity::kUnknown && !waits_for_ranks(served.activity)) return served;
    }
  }
  if (!by_autograd && !in_event_loop && doing.activity != Activity::kPythonLock) return doing;
  // A main thread that waits for tasks is told by what any thread with the user's code does, where all such threads do the same.
  const bool for_tasks = !by_autograd && (in_event_loop || waits_for_tasks(job_, r.threads[main]));
  std::optional<Doing> told, told_by_task, beside;
  bool tasks_agree = true;
  for (std::size_t t = 0; t < r.threads.size(); ++t) {
    const Role role = roles_[rank][t];
    if (t == main || (by_autograd ? role != Role::kAutograd : role != Role::kPython && role != Role::kCheckpoint && role != Role::kDataLoader)) continue;
    const Doing other = of_thread(rank, t);
    // Of an event loop what its pool runs may be awaited. Threads beside it have work of their own: standing.cc compares them, and where it cannot, a
    // collective in one tells.
    if (in_event_loop && !runs_pool_task(job_, r.threads[t])) {
      if (other.activity == Activity::kCollective && !beside) beside = other;
      continue;
    }
    const bool tells = by_autograd ? other.activity != Activity::kUnknown && other.activity != Activity::kAutograd && (other.by_frame || has_python(job_, r.threads[t]))
                                   : other.by_frame && other.activity != Activity::kSubprocess;
    const bool task = for_tasks && role == Role::kPython && runs_task(job_, r.threads[t]) && !waits_for_ranks(other.activity) && other.activity != Activity::kUnknown &&
                      other.activity != Activity::kPythonLock;
    if (task && told_by_task) tasks_agree = tasks_agree && told_by_task->activity == other.activity;
    if (task && !told_by_task) told_by_task = other;
    if (tells && (!told || waits_for_ranks(in_event_loop ? other.activity : told->activity) > waits_for_ranks(in_event_loop ? told->activity : other.activity))) told = other;
  }
  if (told) return *told;
  if (told_by_task && tasks_agree) return *told_by_task;
  if (beside) return *beside;
  if (for_tasks && !told_by_task)
    for (const RankSnapshot& child : job_.ranks)
      if (child.kind == RankKind::kChild && child.parent == r.pid && child.host == r.host && works_for_pool(job_, child)) {
        Doing pool = doing;
        pool.activity = Activity::kSubprocess;
        return pool;
      }
  if (!by_autograd) return doing;
  // Nothing tells: where NCCL's threads exist the engine may wait for a collective on the device.
  Doing unknown = doing;
  unknown.activity = any_thread_of(roles_, rank, Role::kNcclWatchdog) ? Activity::kGpuWait : Activity::kUnknown;
  return unknown;
}

std::size_t own_frames(const FrameTable& frames, const ThreadSnapshot& thread) {
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    if (is_place(frames[thread.frames[i]], Place::kProcessStart)) return i + 1;
  }
  return thread.frames.size();
}

std::optional<std::size_t> telling_frame(const JobSnapshot& job, const ThreadSnapshot& thread) {
  std::optional<std::size_t> python, native;
  const std::size_t own = own_frames(job.frames, thread);
  for (std::size_t i = 0; i < own; ++i) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (frame.kind == FrameKind::kPython) {
      if (!is_library_file(frame.file.value_or("<unknown>"))) return i;
      if (!python) python = i;
    } else if (frame.function && is_mpi_function(*frame.function)) {
      native.reset();   // what stands inside of an MPI call is MPI's, and changes while it spins
    } else if (!native && frame.function && !is_opaque(frame.module) && !is_interpreter(frame.module) && !is_thread_start(frame)) {
      native = i;
    }
  }
  return python ? python : native;
}

bool waits_for_events(const JobSnapshot& job, const ThreadSnapshot& thread) {
  constexpr std::array<std::string_view, 13> kEventCalls = {"epoll_wait", "epoll_pwait", "epoll_pwait2", "pselect",         "pause",  "sigsuspend", "rt_sigsuspend",
                                                            "sigwait",    "sigwaitinfo", "sigtimedwait", "rt_sigtimedwait", "accept", "accept4"};
  const std::string call = blocking_call(job, thread);
  return is_one_of(call, kSleepCalls) || is_one_of(call, kPollCalls) || is_one_of(call, kEventCalls);
}

bool is_process_lock(const Frame& frame) { return frame.kind == FrameKind::kNative && base_name(frame.module).starts_with("_multiprocessing."); }

bool writes_output(const ThreadSnapshot& thread) {
  const SyscallInfo* call = syscall_of(thread);
  if (call == nullptr || (call->name != "write" && call->name != "writev")) return false;
  if (!call->fd_target) return call->fd == 1 || call->fd == 2;   // a core: where it went is not known, but that it is output
  const std::string& target = *call->fd_target;
  return target.starts_with("pipe:") || target.starts_with("/dev/pts/") || target.starts_with("/dev/tty") || target.starts_with("/dev/console");
}

std::string describe_place(const JobSnapshot& job, const ThreadSnapshot& thread) {
  const auto index = telling_frame(job, thread);
  if (!index) return "";
  const Frame& frame = job.frames[thread.frames[*index]];
  if (frame.kind == FrameKind::kNative) {
    const std::string line = frame.file && frame.line ? fmt::format(" at {}:{}", base_name(*frame.file), *frame.line) : "";
    return fmt::format("{}{} in {}", short_function(*frame.function), line, base_name(frame.module));
  }
  const std::string name = frame.qualname ? *frame.qualname : frame.function.value_or("?");
  return fmt::format("{} at {}:{}", name, base_name(frame.file.value_or("?")), frame.line ? std::to_string(*frame.line) : "?");
}

Stand stand_of(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.state == 'T') return Stand::kStopped;
  if (thread.state == 't') return Stand::kTraced;
  if (thread.state == 'Z' || thread.state == 'X') return Stand::kDead;
  if (const SyscallInfo* call = syscall_of(thread)) return is_one_of(call->name, kSleepCalls) ? Stand::kSleeping : Stand::kInCall;
  if (thread.state == 'R') return Stand::kRunning;
  if (is_one_of(blocking_call(job, thread), kSleepCalls)) return Stand::kSleeping;
  return thread.state == 'D' ? Stand::kUninterruptible : Stand::kUnknown;
}

std::string describe_block(const JobSnapshot& job, const ThreadSnapshot& thread) {
  switch (stand_of(job, thread)) {
    case Stand::kUnknown: return "";
    case Stand::kStopped: return "stopped";
    case Stand::kTraced: return "stopped by a tracer";
    case Stand::kDead: return "dead";
    case Stand::kSleeping: return "sleeping";
    case Stand::kRunning: return "running";
    case Stand::kUninterruptible: return "in uninterruptible sleep";
    case Stand::kInCall: break;
  }
  const SyscallInfo& call = *syscall_of(thread);
  if (call.fd && call.fd_target) return fmt::format("blocked in {}(fd {} -> {})", call.name, *call.fd, *call.fd_target);
  if (call.fd) return fmt::format("blocked in {}(fd {})", call.name, *call.fd);
  return "blocked in " + call.name;
}

}  // namespace rankstacks
