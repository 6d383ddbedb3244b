// The fault that a signal handler was called for, of a thread whose handler has raised the signal again in order to end
// the process, as those of Python's faulthandler, of absl and of glog do: what the process has died of is then only the
// second signal, without an address and at another instruction.
//
// The kernel saves the registers on the stack when it calls a handler, as a struct ucontext (struct rt_sigframe,
// arch/x86/include/asm/sigframe.h), and with them the number of the processor's last exception and its address. It
// saves a siginfo only for handlers with SA_SIGINFO, so that it is not used here.
#pragma once

#include "model/snapshot.h"
#include "target/target.h"

namespace rankstacks::target {

// `context`: the address of the struct ucontext, where the stack pointer of the signal trampoline points to; `pc`: of
// the interrupted frame. If the signal is one that its own process has sent, and if that frame's instruction can have
// been the cause of the exception, `signal` gets the fault's address, its place and its instruction, and it returns
// true. The number of the exception alone is no proof: it stays what it was when a handler is called for a signal
// without one.
bool read_handled_fault(const Target& target, Address context, Address pc, Pid pid, SignalInfo& signal);

}  // namespace rankstacks::target
