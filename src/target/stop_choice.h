// Whether a process may be stopped while it is read (--stop).
#pragma once

#include <vector>

#include "base/types.h"

namespace rankstacks::target {

enum class StopPolicy {
  kAuto,    // only the threads that cannot be read otherwise
  kAlways,  // every thread
  kNever,   // none: no ptrace call is made
};

struct StopChoice {
  StopPolicy policy = StopPolicy::kAlways;
  // kAuto: threads that an earlier reading has shown to need a stop, as their stacks need registers that only a stop
  // tells.
  std::vector<Tid> needed = {};
};

}  // namespace rankstacks::target
