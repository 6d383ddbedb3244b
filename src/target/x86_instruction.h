// One x86-64 instruction, as far as a fault needs it: its text as gdb prints it (AT&T's notation), its length, and the
// memory that it reads or writes.
//
// A decoder of the tool's own, and not a library (Zydis, Capstone): a fault has one instruction, of which the memory
// operand is what matters, and that is encoded alike in all instructions (ModRM, SIB, displacement). A library would be
// a dependency of the build and of the packaged binary that is larger than the rest of what it is needed for. An
// instruction without a row in the tables has no text; its length (instruction_shape.h) and, where the encoding alone
// tells it, its memory operand are known nevertheless.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 and appendix A.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "target/registers.h"

namespace rankstacks::target {

inline constexpr std::size_t kLongestInstruction = 15;

struct MemoryOperand {
  // DwarfRegister. kRip: relative to the end of the instruction. Neither base nor index: an absolute address.
  std::optional<unsigned> base, index;
  unsigned scale = 1;
  std::int64_t displacement = 0;
  bool fs = false, gs = false;  // relative to the thread pointer, or to what only the kernel knows
  unsigned bytes = 1;           // its size; a lower bound where it is not known

  // std::nullopt: a register is not known, or it is relative to gs.
  std::optional<Address> address(const Registers& registers, Address end_of_instruction) const;
};

struct Instruction {
  std::string text;  // "mov 0x10(%rax),%rdx"; "": not in the tables
  std::size_t length = 0;
  std::vector<MemoryOperand> memory;
  std::optional<unsigned> divisor;  // DwarfRegister, of a division by a register
};

// std::nullopt: not an instruction, or too few bytes.
std::optional<Instruction> decode_instruction(std::span<const std::uint8_t> bytes);

// "rax", "r8", "rip"
const char* register_name(unsigned dwarf_register);

}  // namespace rankstacks::target
