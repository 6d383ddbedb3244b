// The form of the inputs of recorder_memory: a Way, and then what lies in memory from kBase on.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace rankstacks::fuzz {

inline constexpr Address kBase = 0x10000;

struct Way {
  std::uint8_t of_gloo = 0;
  std::uint8_t repeats = 0;         // the memory begins anew behind its end, again and again
  std::uint8_t changes_before = 0;  // the read before which a word changes, from 1 on; 0: none does
  std::uint8_t unused = 0;
  std::uint32_t changed_word = 0;  // its number
  std::uint64_t value = 0;         // and what it becomes
};
static_assert(sizeof(Way) == 16);

}  // namespace rankstacks::fuzz
