// Calls a function without arguments inside a running process, on one of its threads, which then continues as if
// nothing had happened: an inferior call, as gdb names it.
//
// Before the call begins, everything that the thread needs to continue is saved on its own stack as a signal frame:
// general and floating-point registers, and the signal mask. The function returns into libc's signal trampoline, and
// the kernel restores the thread (rt_sigreturn). So the thread comes back by itself, even if this tool is killed in the
// middle of the call.
//
//     | ... the thread's own stack | 128 bytes red zone | saved vector state | signal frame |
//                                                                            ^
//                                                                            rsp: its first word is the return address
//
// Which thread is chosen: calling_thread.h. It is checked once more after it was stopped, and the call is made only if
// the thread is still in the very system call that it was chosen for, and belongs to the very process that was meant.
//
// During the call all signals but those of the thread's own faults are blocked in it, so that no handler of the program
// runs in the middle of the driver, or jumps out of it. Meanwhile a signal for the process goes to another thread. A
// signal for this thread waits until the call is over, and then interrupts the thread's wait as it would have. (A
// thread that the function starts inherits that mask, as helper threads should have it.)
//
// The thread's system call is restarted where the kernel does that after a stop; a wait with a relative time-out waits
// for that whole time once more. Other system calls return EINTR (README.md has the list); a thread in one of these is
// chosen last. At the end of the call the tool, if it is still alive, restores the thread in place of the kernel, as
// only then a signal whose handler has to run ends the wait; apart from that the result is what the kernel would do
// with the frame.
#pragma once

#include <chrono>
#include <functional>

#include "base/result.h"
#include "base/types.h"
#include "target/process_id.h"

namespace rankstacks::gpu {

struct InferiorCall {
  Tid tid = 0;
  double held_ms = 0;  // how long the thread was away from its own work
};

// Chooses a thread and calls `function` on it. Threads are tried in the order of their suitability, each after the one
// before was refused; once the call has begun on one, no other is tried. `about_to_call` is called when a thread is
// stopped and ready: if it returns false, no call is made, and the error is kGone. Errors: kUnsupported: no thread of
// the process can make the call (the message says how many, and why), or the process has no signal trampoline;
// kPermission; kGone: the process has ended, or the pid belongs to another process; kTimeout: the call was given up
// after `limit`, and the thread was put back where it was; kUnreadable: the function ended by a signal of its own, and
// the thread was put back as well.
Result<InferiorCall> make_inferior_call(const target::ProcessId& process, Address function,
                                        std::chrono::milliseconds limit,
                                        const std::function<bool()>& about_to_call = {});

// The same on this one thread; the error says why it cannot make the call.
Result<InferiorCall> call_in(const target::ProcessId& process, Tid tid, Address function,
                             std::chrono::milliseconds limit);

}  // namespace rankstacks::gpu
