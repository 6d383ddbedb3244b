#include "target/call_instruction.h"

namespace rankstacks::target {

CallInstruction call_at_the_end_of(const std::array<std::uint8_t, kLongestCall>& before) {
  if (before[3] == 0xe8) return CallInstruction::kDirect;
  // call r/m64 is FF /2 with a ModRM byte (and SIB, displacement): 2 to 7 bytes. A REX prefix may precede it.
  for (unsigned length = 2; length <= 7; ++length) {
    const std::uint8_t op = before[8 - length], modrm = before[8 - length + 1];
    if (op != 0xff || ((modrm >> 3) & 7) != 2) continue;
    const unsigned mod = modrm >> 6, rm = modrm & 7;
    unsigned expected = 2;
    if (mod != 3 && rm == 4) expected += 1;
    if (mod == 1) expected += 1;
    if (mod == 2 || (mod == 0 && rm == 5)) expected += 4;
    if (mod == 0 && rm == 4 && length > 2 && (before[8 - length + 2] & 7) == 5)
      expected += 4;  // the SIB byte also precedes the address
    if (expected == length) return CallInstruction::kIndirect;
  }
  return CallInstruction::kNone;
}

}  // namespace rankstacks::target
