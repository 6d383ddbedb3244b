// What the kernel's log says of processes that have ended.
#pragma once

#include <string>

#include "base/types.h"

namespace rankstacks {
inline namespace model {

struct KernelKill {
  enum class Cause {
    kOutOfMemory,  // the kernel has killed it for lack of memory
    kFault,        // a fault that it did not handle: a segmentation fault, an illegal instruction
  };

  std::string host;
  Pid pid = 0;       // in the machine's own pid namespace; of a fault: the thread
  std::string name;  // the process's, of a fault the thread's: at most 15 bytes
  Cause cause = Cause::kOutOfMemory;
  std::string at;    // "2026-01-31T12:00:00.123Z"
  std::string text;  // the line of the log, without its time
  bool operator==(const KernelKill&) const = default;
};

}  // namespace model
}  // namespace rankstacks
