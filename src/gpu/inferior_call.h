// Calls a function without arguments inside a running process, on one of its threads, which then goes on as if nothing
// had been.
//
// Everything that the thread needs to go on lies on its own stack before the call begins, as a signal frame: general
// and floating-point registers, signal mask. The function returns into libc's signal trampoline, and the kernel
// restores the thread (rt_sigreturn). So the thread comes back by itself, also when this tool is killed in the middle
// of the call.
//
//     | ... the thread's own stack | 128 bytes red zone | saved vector state | signal frame | <- rsp: its first word is
//     the return address
//
// Which thread: calling_thread.h. It is looked at once more after it was stopped, and the call is made only if it still is
// in the very system call that it was chosen for, and is a thread of the very process that was meant.
//
// While it is away all signals but those of its own faults are blocked in it: no handler of the program runs in the
// middle of the driver, or jumps out of it. What comes meanwhile for the process goes to another thread; what comes for
// this one waits until it is back, and then interrupts its wait as it would have. (A thread that the function starts
// inherits that mask, as helper threads should have it.)
//
// Its system call is begun again, where the kernel does that after a stop: a wait with a relative time-out waits for
// that whole time once more. Others return EINTR (README.md has the list); a thread in one of these is taken last. At
// the end of the call the tool, if it lives, restores the thread in place of the kernel, as only then a signal's
// handler that has to run ends the wait; what the kernel would do with the frame is the same but for that.
#pragma once

#include <chrono>
#include <functional>

#include "base/result.h"
#include "base/types.h"
#include "target/process_id.h"

namespace rankstacks::gpu {

struct InferiorCall {
  Tid tid = 0;
  double held_ms = 0;   // how long the thread was away from its own work
};

// Chooses a thread and calls `function` on it. Threads are tried in the order of their suitability, and what is refused
// gives way to the next; once the call has begun on one, no other is tried. `about_to_call` is asked when a thread stands
// ready: if it says no, nobody is called, and the error is kGone. Errors: kUnsupported: no thread of it can
// make the call (how many, and why), or it has no signal trampoline; kPermission; kGone: it has ended, or the pid is
// another process's; kTimeout: after `limit` the call was given up, and the thread put back where it was; kUnreadable:
// the function ended by a signal of its own, and the thread was put back as well.
Result<InferiorCall> make_inferior_call(const ProcessId& process, Address function, std::chrono::milliseconds limit,
                                     const std::function<bool()>& about_to_call = {});

// The same on this one thread, or the reason against it.
Result<InferiorCall> call_in(const ProcessId& process, Tid tid, Address function, std::chrono::milliseconds limit);

}   // namespace rankstacks::gpu
