// A stopped thread as the kernel describes it, for the notes of a core: more than an unwinder needs.
#pragma once

#include <sys/user.h>
#include <cstddef>
#include <vector>

#include "base/types.h"

namespace rankstacks::target {

struct RawThread {
  Tid tid = 0;
  user_regs_struct registers{};
  // The processor's extended state (NT_X86_XSTATE), which begins with that of NT_FPREGSET; empty: it could not be read.
  std::vector<std::byte> extended;
};

}  // namespace rankstacks::target
