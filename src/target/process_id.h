// The identity of a process: its pid, which the kernel gives to another process after it has ended, and its start time,
// which distinguishes the two.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/types.h"
#include "model/snapshot.h"

namespace rankstacks::target {

struct ProcessId {
  Pid pid = 0;
  std::uint64_t start_ticks = 0;  // proc::Stat

  // The process that has this pid now. kGone: there is none.
  static Result<ProcessId> of(Pid pid);

  // Whether the pid still belongs to this process. kGone: it has ended, and another one may have its pid. The answer
  // stays true only for what cannot change its process any more, such as a thread that is seized.
  Result<void> check() const;
};

// The pid space of the tool itself, in which it sees all processes; std::nullopt if /proc does not state it.
std::optional<PidSpace> own_pid_space();
// The pid namespace of a process, and its number there; std::nullopt if it may not be read, or has ended.
std::optional<NamespacedPid> namespaced_pid_of(Pid pid);

}  // namespace rankstacks::target
