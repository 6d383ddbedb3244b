// DWARF expressions in call frame information: which of them may be passed to a library's evaluator.
//
// An expression is sound if it ends, needs no deeper stack than the evaluators have, leaves a value, and consists of
// operations that libunwind 1.6.2 computes as DWARF specifies. Not sound are: jumps back (libunwind has no bound on
// loops), division (the lowest number divided by -1 traps on x86-64), addresses (nobody relocates them there),
// registers as locations, and accesses to memory of 3, 5, 6 or 7 bytes (libunwind masks those wrongly).
#pragma once

#include <cstddef>
#include <span>

namespace rankstacks::unwind {

// libunwind's stack has 64, one of which it pushes unasked.
inline constexpr std::size_t kMaxExpressionValues = 63;
// The longest one seen has 11 bytes, in a PLT.
inline constexpr std::size_t kMaxExpressionBytes = 256;

// `pushed`: how many values are on the stack before it begins: the CFA for a register's rule, none for the CFA's own
// rule.
bool is_sound_expression(std::span<const std::byte> expression, unsigned pushed);

}  // namespace rankstacks::unwind
