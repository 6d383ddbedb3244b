// The encoding of one x86-64 instruction, as far as walking over code needs it: its length, its operation, and which
// registers its ModRM byte names. Unlike decode_instruction() (x86_instruction.h), which names what a fault needs, it
// knows the length of every instruction of compiled code.
//
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 and appendix A.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rankstacks::target {

struct InstructionShape {
  // kOneByte: `opcode` alone; kTwoByte: after 0f; kOther: 0f 38, 0f 3a, and everything with a VEX or EVEX prefix, of
  // which none writes a general register that holds an address of a frame.
  enum class Map : std::uint8_t { kOneByte, kTwoByte, kOther } map = Map::kOneByte;
  std::size_t length = 0;
  std::uint8_t opcode = 0;
  bool has_modrm = false;
  // Of ModRM, with REX; in the processor's numbering: 4 is rsp, 5 rbp. `base`: the register that memory is addressed
  // from, if it is addressed without an index; -1: otherwise.
  unsigned mod = 0, reg = 0, rm = 0;
  int base = -1;
  bool rex_b = false;             // of the register that an opcode without ModRM names
  std::int32_t displacement = 0;  // of memory
  std::int64_t immediate = 0;
};

// std::nullopt: no instruction of 64-bit code, or too few bytes.
std::optional<InstructionShape> shape_of_instruction(std::span<const std::uint8_t> bytes);

}  // namespace rankstacks::target
