// Where a thread is in its program, and what it is blocked in: derived from its frames, its state and its system
// call.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// The frame that a person looks for first: the innermost Python frame in a file of the user; else the innermost
// Python frame; else the innermost native frame with a name outside of the C library. std::nullopt if the stack has
// none of these.
std::optional<std::size_t> deciding_frame(const JobSnapshot& job, const ThreadSnapshot& thread);

// The number of frames that are the thread's own: in a forked worker (multiprocessing) the frames outside of its
// _bootstrap are its parent's stack.
std::size_t own_frames(const FrameTable& frames, const ThreadSnapshot& thread);

// Whether it is a Python function in a file of the user, as opposed to an installed library's or the interpreter's.
bool is_users_code(const Frame& frame);

// Whether one of the thread's frames is such a function.
bool runs_users_code(const JobSnapshot& job, const ThreadSnapshot& thread);
// Whether one of its frames is the function by which the threads of a pool run their tasks.
bool runs_pool_task(const JobSnapshot& job, const ThreadSnapshot& thread);

// What the thread called: the system call if the kernel reported it, else the C library's function at the top of the
// stack. "" if neither is known.
std::string blocking_call(const JobSnapshot& job, const ThreadSnapshot& thread);
// Whether it sleeps, or waits for a signal, a connection or any of several descriptors.
bool waits_for_events(const JobSnapshot& job, const ThreadSnapshot& thread);
// Whether this is a function of multiprocessing's locks between processes, whose acquire() is not Python code.
bool is_process_lock(const Frame& frame);
// Whether its frames in functions of locks are no wait: it gives a lock back, or holds the GIL, which CPython gives
// back before it waits for a lock.
bool passes_locks(const JobSnapshot& job, const ThreadSnapshot& thread);
// Whether it writes to a pipe or a terminal whose reader does not read.
bool writes_output(const ThreadSnapshot& thread);

// Whether it is in a call that only passes the time: also in CPython's time.sleep, which was a select until 3.10.
bool is_in_sleep(const JobSnapshot& job, const ThreadSnapshot& thread);

// Whether it looks again and again for something, and sleeps a little in between: what a child was to bring, or another
// rank, maybe.
bool polls_asleep(const JobSnapshot& job, const ThreadSnapshot& thread);

// From the outermost Python frame inwards both are in the same functions at the same lines, and then at two lines of
// one function of the user's.
bool branch_in_users_function(const JobSnapshot& job, const ThreadSnapshot& a, const ThreadSnapshot& b);

// "Blocked.__getitem__ at train.py:9"
std::string describe_place(const JobSnapshot& job, const ThreadSnapshot& thread);

// Whether a thread runs, and if not, why: derived from its state and system call.
enum class RunState { kUnknown, kStopped, kTraced, kFrozen, kDead, kSleeping, kInCall, kRunning, kUninterruptible };
RunState run_state_of(const JobSnapshot& job, const ThreadSnapshot& thread);

// "blocked in read(fd 5 -> pipe:[123])", "sleeping", "running". "" if nothing is known.
std::string describe_block(const JobSnapshot& job, const ThreadSnapshot& thread);

}  // namespace rankstacks::analyzers
