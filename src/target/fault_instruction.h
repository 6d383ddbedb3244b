// The instruction that a thread could not execute, from the core: its text, and the registers that its faulting operand
// is made of.
#pragma once

#include <optional>

#include "model/snapshot.h"
#include "target/target.h"

namespace rankstacks::target {

// Fills `signal.instruction` of SIGSEGV, SIGBUS, SIGILL and SIGFPE, if the thread's registers and its code can be read;
// of an address that was to be executed there is none, nor of a signal that a process has sent: the instruction has
// nothing to do with it. The processor states no address for one that is not canonical (the kernel then says 0, and
// SI_KERNEL): if the operand's address is such a one, it becomes `signal.fault_address`. To be called before
// place_of_fault().
void read_fault_instruction(const Target& target, SignalInfo& signal);

// The same with the registers that the thread had at the fault.
void read_fault_instruction(const Target& target, const Registers& registers, SignalInfo& signal);

// Whether the instruction at the pc executes, reads or writes the address, or what is right behind it: not all
// operands' sizes are known.
bool reaches(const Target& target, const Registers& registers, Address address);

}  // namespace rankstacks::target
