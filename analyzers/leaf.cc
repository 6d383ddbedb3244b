#include "analyzers/leaf.h"

#include "analyzers/blocking_calls.h"
#include "analyzers/names.h"
#include "base/text.h"
#include "known/known_programs.h"
#include "known/modules.h"

namespace rankstacks::analyzers {
namespace {

// Functions of the C library in the innermost run of frames, by their public names.
bool on_top(const JobSnapshot& job, const ThreadSnapshot& thread, bool (*matches)(std::string_view)) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || !is_opaque(frame.module)) return false;
    if (frame.function && matches(public_libc_name(*frame.function))) return true;
  }
  return false;
}

bool is_regular_path(const std::string& target) {
  return target.starts_with('/') && !target.starts_with("/dev/") && !target.starts_with("/proc/") &&
         !target.starts_with("/memfd:");
}

bool is_network(const std::string& target) {
  return target.starts_with("tcp") || target.starts_with("udp") || target.starts_with("unix") ||
         target.starts_with("socket");
}

// With the name alone (a core without descriptors) a read may be of a pipe or a socket: only calls that take a path,
// and sync, are certain to be file I/O.
bool is_file_call(std::string_view name, const std::string& target) {
  if (!is_one_of(name, kFileCalls)) return false;
  const bool always_file = name != "read" && name != "write" && name != "readv" && name != "writev" && name != "close";
  return is_regular_path(target) || (target.empty() && always_file);
}

// Its stack is not known beyond the call itself: who reads the socket may be the library by which ranks communicate.
bool lacks_callers(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.frames.empty()) return true;
  return thread.stack_end != StackEnd::kComplete && !deciding_frame(job, thread);
}

// Of the native functions that are known, the one that runs, or that has called the C library, is the interpreter's:
// also where no native function is known.
bool calls_from_interpreter(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind == FrameKind::kNative && !is_opaque(frame.module)) return is_interpreter(frame.module);
  }
  return true;
}

// Of a stack that ended early, Python's functions are known by themselves, and not what they have called: it may be a
// collective. Not so if the thread is in Python's sleep, or runs Python's code.
bool lacks_called_functions(const JobSnapshot& job, const ThreadSnapshot& thread, std::size_t place) {
  if (job.frames[thread.frames[place]].origin != FrameOrigin::kSeparate || thread.stack_end == StackEnd::kComplete)
    return false;
  // CPython's sleep calls clock_nanosleep or select: others are a library's, as that of SQLite at a lock.
  const bool by_library =
      on_top(job, thread, [](std::string_view f) { return f == "usleep" || f == "nanosleep" || f == "sleep"; });
  const bool sleeps = run_state_of(job, thread) == RunState::kSleeping && !by_library;
  const bool in_python = thread.gil == Gil::kHolds || sleeps;
  return !in_python || !calls_from_interpreter(job, thread);
}

// SQLite polls for a lock that another process holds: the kernel sees nothing but a sleep. SQLite's own functions
// seldom have names.
bool waits_for_database(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (!is_one_of(blocking_call(job, thread), kSleepCalls)) return false;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative) return false;
    if (!is_opaque(frame.module)) return known::is_sqlite(base_name(frame.module));
  }
  return false;
}

// asyncio's loop, asleep until a socket, a timer or a thread of its pool wakes it. What its tasks await is not on any
// stack.
bool waits_in_event_loop(const JobSnapshot& job, const ThreadSnapshot& thread) {
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind == FrameKind::kNative && frame.function == "uv__io_poll") return true;
    if (frame.kind != FrameKind::kPython) continue;
    if (is_place(frame, known::Place::kLoopWait)) continue;
    return is_place(frame, known::Place::kEventLoop) && thread.state != 'R' && !thread.gil;
  }
  return false;
}

// It watches nothing but its own descriptor, by which other threads wake it: asyncio's pair of sockets, libuv's
// eventfd.
bool watches_itself_alone(const ThreadSnapshot& thread) {
  return thread.syscall && thread.syscall->fd_target &&
         thread.syscall->fd_target->ends_with("anon_inode:[eventpoll] of 1 descriptor");
}

// The loop awaits the end of a child alone: by a pidfd, or by a thread of its own, which wakes it.
bool awaits_child(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread) {
  if (thread.syscall && !thread.syscall->others.empty()) return thread.syscall->others.front().kind == EndKind::kChild;
  return watches_itself_alone(thread) &&
         std::any_of(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& other) {
           const auto innermost = std::find_if(other.frames.begin(), other.frames.end(),
                                               [&](FrameId id) { return job.frames[id].kind == FrameKind::kPython; });
           return innermost != other.frames.end() && is_place(job.frames[*innermost], known::Place::kLoopChild);
         });
}

// A loop of the user's over several descriptors, asleep until one of them is ready: a call of a selector by the user's
// own code.
bool selects(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.state == 'R' || thread.gil) return false;
  bool in_selector = false;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    if (in_selector) return is_users_code(frame);
    in_selector = is_place(frame, known::Place::kLoopWait);
    if (!in_selector) return false;
  }
  return false;
}

// Python's locks: known from the process's memory, or from frames (the lock's C function at the top of the stack, or
// threading's own waits innermost).
std::optional<std::size_t> python_lock_frame(const JobSnapshot& job, const ThreadSnapshot& thread) {
  static constexpr std::array<std::string_view, 9> kLockFunctions = {
      "PyThread_acquire_lock_timed", "PyThread_acquire_lock", "take_gil",
      "lock_PyThread_acquire_lock",  "rlock_acquire",         "_PyMutex_LockTimed",
      "_PySemaphore_Wait",           "acquire_timed",         "_PyParkingLot_Park"};
  const bool passes = !thread.python_lock && passes_locks(job, thread);
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (frame.kind == FrameKind::kPython) {
      if (thread.python_lock || (!passes && is_place(frame, known::Place::kLock))) return i;
      return std::nullopt;
    }
    if (frame.function && is_one_of(without_suffixes(*frame.function), kLockFunctions)) return i;
    if (!passes && is_process_lock(frame)) return i;
    if (!is_opaque(frame.module) && !is_process_lock(frame) && !is_interpreter(frame.module)) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

// Whether the main program of an interpreter has ended: what it runs now was not called by code of its modules but by
// the interpreter itself (sys.excepthook, a function of atexit). This works even if CPython has no symbols. The
// frames of a greenlet have an outermost frame of their own, outside of which there are further calls of the
// interpreter's loop: those of the greenlet that started it.
bool main_program_ended(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread) {
  if (thread.tid != rank.pid) return false;
  const Frame* root = nullptr;
  bool by_interpreter = false;  // the stack reaches outwards to the interpreter's own main function
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
  return root != nullptr && by_interpreter && root->function != "<module>" && is_users_code(*root);
}

// It runs on its way to the GIL, which none of the process's other threads can have: they are in no Python code. It
// comes back from a call of native code, and a busy machine makes it wait there.
bool takes_free_gil(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread) {
  return thread.state == 'R' &&
         std::none_of(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& other) {
           return other.tid != thread.tid &&
                  (other.gil || std::any_of(other.frames.begin(), other.frames.end(),
                                            [&](FrameId id) { return job.frames[id].kind == FrameKind::kPython; }));
         });
}

bool blocked_at_file(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.state == 'R') return false;
  const std::string target = thread.syscall ? thread.syscall->fd_target.value_or("") : "";
  return writes_output(thread) || is_file_call(blocking_call(job, thread), target);
}

// What the system call, the state and the innermost frames show if no rule applies.
Doing by_leaf(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread, Doing doing) {
  const SyscallInfo* call = thread.syscall ? &*thread.syscall : nullptr;
  const std::string name = blocking_call(job, thread);
  const std::string target = call && call->fd_target ? *call->fd_target : "";

  if (main_program_ended(job, rank, thread)) return doing.activity = known::Activity::kException, doing;
  if (call && call->name == "read" && call->fd == 0) return doing.activity = known::Activity::kDebugger, doing;
  if (is_one_of(name, kWaitCalls)) return doing.activity = known::Activity::kSubprocess, doing;
  if (is_one_of(name, kSocketCalls) || (is_one_of(name, kPollCalls) && is_network(target))) {
    if (lacks_callers(job, thread)) return doing;
    return doing.activity = known::Activity::kNetworkIo, doing;
  }
  if (is_one_of(name, kFileCalls)) {
    if (is_network(target)) return doing.activity = known::Activity::kNetworkIo, doing;
    if (is_file_call(name, target) || thread.state == 'D') return doing.activity = known::Activity::kFileIo, doing;
  }
  if (writes_output(thread)) return doing.activity = known::Activity::kFileIo, doing;
  if (thread.state == 'D') return doing.activity = known::Activity::kFileIo, doing;
  const bool may_wait_for_lock = thread.gil != Gil::kWaits || !takes_free_gil(job, rank, thread);
  if (thread.gil == Gil::kWaits && may_wait_for_lock) return doing.activity = known::Activity::kPythonLock, doing;
  if (waits_for_database(job, thread)) {
    doing.activity = known::Activity::kFileIo;
    doing.operation = operation_of_kind(known::OperationKind::kLockedDatabase, "a locked SQLite database");
    return doing;
  }
  if (waits_in_event_loop(job, thread)) {
    if (awaits_child(job, rank, thread)) return doing.activity = known::Activity::kSubprocess, doing;
    doing.activity = watches_itself_alone(thread) ? known::Activity::kUserCode : known::Activity::kNetworkIo;
    doing.operation = operation_of_kind(known::OperationKind::kEventLoop, "its event loop");
    return doing;
  }
  if (selects(job, thread)) return doing.activity = known::Activity::kNetworkIo, doing;
  if (const auto frame = may_wait_for_lock ? python_lock_frame(job, thread) : std::nullopt) {
    doing.activity = known::Activity::kPythonLock;
    doing.frame = *frame;
    return doing;
  }
  if (may_wait_for_lock && on_top(job, thread, [](std::string_view f) { return is_one_of(f, kMutexCalls); }))
    return doing.activity = known::Activity::kNativeLock, doing;

  const auto place = deciding_frame(job, thread);
  if (!place) return doing;  // unknown frames only
  const bool python_place = job.frames[thread.frames[*place]].kind == FrameKind::kPython;
  // Native frames alone do not show what a Python program does, nor does a stack that ended early: the missing part
  // may be a collective.
  if (!python_place && (rank.python_version || thread.stack_end != StackEnd::kComplete)) return doing;
  if (python_place && lacks_called_functions(job, thread, *place)) return doing;
  doing.activity = known::Activity::kUserCode;
  doing.frame = *place;
  return doing;
}

}  // namespace rankstacks::analyzers
