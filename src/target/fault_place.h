// Finds where the address of a fault lies among the mappings of its process.
//
// A stack has overflowed if the address is in no accessible memory, and the next accessible mapping above it is the
// stack of the thread that took the signal:
//
//     ... | guard: no access, or not mapped | stack of the thread, growing down | struct pthread (fs_base) | ...
//                       ^ address             ^ stack pointer, at most 64 KiB above the start
//
// For glibc's threads the stack is the mapping that contains fs_base; the main thread's is the one called [stack].
#pragma once

#include <optional>

#include "model/snapshot.h"
#include "target/target.h"

namespace rankstacks::target {

// std::nullopt if the signal has no fault address, or if the mappings are not known.
std::optional<FaultPlace> place_of_fault(const Target& target, const SignalInfo& signal, Pid pid);

// The same with the registers that the thread had at the fault.
std::optional<FaultPlace> place_of_fault(const Target& target, const Registers& registers, const SignalInfo& signal,
                                         Pid pid);

}  // namespace rankstacks::target
