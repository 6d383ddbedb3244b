// The system call a stopped thread is in, from its registers.
#pragma once

#include <optional>

#include "model/snapshot.h"
#include "target/target.h"

namespace rankstacks {

// Name of an x86-64 system call, or nullptr.
const char* syscall_name(int number);

// Nothing when the thread was not inside a system call. The fd is the call's own, or the only (else the first) one that poll() or select()
// waits for; fd_target is left open. Arguments are in rdi, rsi, rdx, r10, r8, r9 (System V ABI, A.2.1).
std::optional<SyscallInfo> blocked_syscall(const Target& target, const Registers& registers);

// The address that a blocked futex call waits on, or nothing.
std::optional<Address> futex_address(const Target& target, const Registers& registers);
// The same, or of a call that was interrupted once and may be a futex call: from glibc 2.41 on the number of such a call stands nowhere, as all calls that a thread can be
// cancelled in are made in one place. For who knows what should lie at the address.
std::optional<Address> possible_futex_address(const Target& target, const Registers& registers);

}  // namespace rankstacks
