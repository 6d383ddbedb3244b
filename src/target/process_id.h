// Which process is meant: its pid, which the kernel gives to another one once it has ended, and when it was started,
// which tells the two apart.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/types.h"

namespace rankstacks {

struct ProcessId {
  Pid pid = 0;
  std::uint64_t start_ticks = 0;   // proc::Stat

  // The process that has this pid now. kGone: there is none.
  static Result<ProcessId> of(Pid pid);

  // Is it still this process? kGone: it has ended, and another one may have its pid. What this says holds on only for
  // what cannot change hands any more, such as a thread that is seized.
  Result<void> check() const;
};

}   // namespace rankstacks
