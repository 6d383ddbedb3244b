// DWARF expressions in call frame information: which of them a library's evaluator may be given.
//
// Sound is an expression that ends, needs no deeper stack than the evaluators have, leaves a value, and consists of operations that libunwind 1.6.2
// computes as DWARF says. Not among them: jumps back (it has no bound on loops), division (the lowest number by -1 is a trap on x86-64), addresses
// (nobody relocates them there), registers as locations, and what stands for memory of 3, 5, 6 or 7 bytes (it masks those wrongly).
#pragma once

#include <cstddef>
#include <span>

namespace rankstacks {

// libunwind holds 64, one of which it pushes where nothing was asked for.
inline constexpr std::size_t kMaxExpressionValues = 63;
// The longest seen: 11 bytes, in a PLT.
inline constexpr std::size_t kMaxExpressionBytes = 256;

// `pushed`: how many values are on the stack before it begins: the CFA for a register's rule, none for the CFA's own.
bool is_sound_expression(std::span<const std::byte> expression, unsigned pushed);

}  // namespace rankstacks
