// What a blocked system call waits for at the hands of another process, as far as its arguments tell.
#pragma once

#include <optional>

#include "base/types.h"
#include "model/snapshot.h"
#include "target/registers.h"
#include "target/target.h"

namespace rankstacks {

struct Awaited {
  enum class What {
    kInput,          // bytes, or the end of the stream, from a pipe or socket
    kOutput,         // room in a pipe or socket, or its connection
    kEvents,         // whatever an epoll descriptor watches
    kFlock,          // flock(2)
    kRecordLock,     // fcntl(F_SETLKW)
    kOpenFileLock,   // fcntl(F_OFD_SETLKW)
    kChild,          // the end of one process
    kAnyChild,       // the end of any child
    kDatabase,       // an SQLite database: the call is a sleep between two tries for its lock, as the frames tell (capture/other_ends.h)
  };
  What what = What::kInput;
  int fd = -1;                       // nothing of kChild, kAnyChild and kDatabase
  Pid child = 0;                     // kChild: as the waiting process's pid namespace counts
  // By which the call is known again in /proc/PID/task/TID/syscall.
  int number = -1;
  std::uint64_t first_argument = 0;
  Address sp = 0;                    // kDatabase: each of its sleeps is another call
};

// `call` is what blocked_syscall() said of these registers. Nothing: the call waits for nobody in particular, or for any of several descriptors, or for a process group.
// poll() and select() count where exactly one descriptor is asked for.
std::optional<Awaited> awaited_by(const Target& target, const Registers& registers, const SyscallInfo& call);

}  // namespace rankstacks
