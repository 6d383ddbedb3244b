// The stack of a thread that was only glanced at (target/glances.h): its sp, pc and system call arguments are known,
// its other registers are not.
#pragma once

#include <optional>

#include "unwind/unwinder.h"

namespace rankstacks::unwind {

// The stack if the walk reaches its end, else std::nullopt. Functions with a frame pointer need rbp, which is unknown
// if no inner function has saved it. In that case rbp is assumed to be the first place on the stack that holds a
// caller's frame pointer and return address and from which the walk reaches the end; places whose return address is
// behind a call of this function are tried first. The result is for comparing stacks, not for showing.
std::optional<UnwoundStack> unwind_glance(const target::Target& target, const target::Registers& registers);

}  // namespace rankstacks::unwind
