// Whether the bytes before an address end in a call instruction, as the bytes before a return address do.
#pragma once

#include <array>
#include <cstdint>

namespace rankstacks::target {

enum class CallInstruction : std::uint8_t { kNone, kDirect, kIndirect };

inline constexpr std::size_t kLongestCall = 8;  // with a REX prefix

// `before[8 - n]` is the byte n before the address; 0 if it is unknown. A direct call is E8 and a 32-bit distance.
CallInstruction call_at_the_end_of(const std::array<std::uint8_t, kLongestCall>& before);

}  // namespace rankstacks::target
