// What a blocked system call waits for from another process, as far as its arguments show it.
#pragma once

#include <optional>

#include "base/types.h"
#include "model/snapshot.h"
#include "target/registers.h"
#include "target/target.h"

namespace rankstacks::target {

struct Awaited {
  enum class What {
    kInput,         // bytes, or the end of the stream, from a pipe or socket
    kOutput,        // room in a pipe or socket, or its connection
    kEvents,        // any event that an epoll descriptor watches for
    kFlock,         // flock(2)
    kRecordLock,    // fcntl(F_SETLKW)
    kOpenFileLock,  // fcntl(F_OFD_SETLKW)
    kChild,         // the end of one process
    kAnyChild,      // the end of any child
    // An SQLite database: the call is a sleep between two attempts to get its lock, as the frames show
    // (capture/other_ends.h).
    kDatabase,
  };
  What what = What::kInput;
  int fd = -1;    // not used for kChild, kAnyChild and kDatabase
  Pid child = 0;  // kChild: as numbered in the pid namespace of the waiting process
  // These identify the call when it is seen again in /proc/PID/task/TID/syscall.
  int number = -1;
  std::uint64_t first_argument = 0;
  Address sp = 0;  // kDatabase: identifies the wait, as each of its sleeps is a new call
};

// `call` is what blocked_syscall() returned for these registers. std::nullopt if the call waits for no process in
// particular, for any of several descriptors, or for a process group. poll() and select() count only if they ask for
// exactly one descriptor.
std::optional<Awaited> awaited_by(const Target& target, const Registers& registers, const SyscallInfo& call);

}  // namespace rankstacks::target
