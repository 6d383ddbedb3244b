// Which parts of a process's stacks its small core holds.
#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "target/target.h"
#include "unwind/unwinder.h"

namespace rankstacks::small_core {

// By thread, each in whole pages. `stacks`: parallel to target.threads().
std::vector<Range> stack_ranges(const target::Target& target, std::span<const unwind::UnwoundStack> stacks);

}  // namespace rankstacks::small_core
