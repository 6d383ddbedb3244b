// The stack of a thread that was only glanced at (target/glances.h): of its registers, sp and pc are known, and what the system call was given.
#pragma once

#include <optional>

#include "unwind/unwinder.h"

namespace rankstacks {

// Walked to its end, or nothing. Functions with a frame pointer are found by rbp, which is not known where nothing inside has kept it: then it is taken to be
// the first place on the stack that has a caller's frame pointer and return address, and leads to the end; one that a call of this function has left before
// others. To compare stacks by, not to show.
std::optional<UnwoundStack> unwind_glance(const Target& target, const Registers& registers);

}  // namespace rankstacks
