// OwnNote::kStacks: the return addresses of each thread, as they were found where the files of all modules were there.
// They are used where a module's file is not, because its unwind tables are then missing as well.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "target/target.h"
#include "unwind/unwinder.h"

namespace rankstacks::small_core {

// Parallel: the threads of a target and their stacks.
std::vector<std::byte> write_stacks(std::span<const target::ThreadInfo> threads,
                                    std::span<const unwind::UnwoundStack> stacks);

// By thread id. What is damaged is left out, and everything behind it.
std::map<Tid, unwind::UnwoundStack> read_stacks(std::span<const std::byte> body);

}  // namespace rankstacks::small_core
