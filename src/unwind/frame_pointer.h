// The frame pointer of a frame whose stack pointer is known, read off the code of its function.
//
//     push %rbp; mov %rsp,%rbp; push %r12; push %rbx; sub $0x20,%rsp; ... call f     rbp = rsp + 0x30 after the call
//
// For threads that were not stopped: the kernel tells their rsp and rip, and not rbp, which the unwind information of
// code with frame pointers needs, and which the C library's functions around system calls do not save.
#pragma once

#include <optional>

#include "target/target.h"

namespace rankstacks::unwind {

// std::nullopt if the function moves rsp by amounts that its code does not state (alloca, arrays of variable size, a
// realigned stack), if its code cannot be followed, or if there is no return address of a call that may have led to
// this function (of it, of one that goes on in it, by a pointer or a stub of the linker's) where the frame pointer
// says. Functions that unwind information covers, alone.
std::optional<Address> derived_frame_pointer(const target::Target& target, const target::Registers& registers,
                                             bool exact_pc);

}  // namespace rankstacks::unwind
