// The system call that a stopped thread is in, determined from its registers.
#pragma once

#include <optional>

#include "model/snapshot.h"
#include "target/target.h"

namespace rankstacks::target {

// Name of an x86-64 system call, or nullptr.
const char* syscall_name(int number);

// std::nullopt if the thread was not inside a system call. The fd is the call's own, or the only (else the first) one
// that poll() or select() waits for; fd_target is not filled in. Arguments are in rdi, rsi, rdx, r10, r8, r9 (System V
// ABI, A.2.1).
std::optional<SyscallInfo> blocked_syscall(const Target& target, const Registers& registers);

// Whether a stop, or a signal without a handler, ends such a call early, and what it waited for has to be asked for
// otherwise: io_getevents() then returns fewer events than were asked for, and semop() an error that few programs
// expect (fs/aio.c, read_events(); ipc/sem.c, __do_semtimedop()). Programs that call epoll_wait() call it again.
bool is_spoiled_by_stop(int number);

// The address that a blocked futex call waits on, or std::nullopt.
std::optional<Address> futex_address(const Target& target, const Registers& registers);
// The same, also for a call that was interrupted once and may be a futex call: since glibc 2.41 the number of such a
// call is not available, as all calls that are cancellation points are made in one place. For callers that know what
// should be at the address.
std::optional<Address> possible_futex_address(const Target& target, const Registers& registers);

}  // namespace rankstacks::target
