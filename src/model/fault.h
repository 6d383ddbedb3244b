// Where the address of a fault lies among the mappings of its process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace rankstacks {
inline namespace model {

enum class FaultRegion {
  kFirstPage,   // no memory, and the address is below 4096: a null pointer with an offset
  kBelowStack,  // no accessible memory, right below the stack of the thread: the stack has overflowed
  kMapped,      // in `mapping`
  kUnmapped,    // in no mapping
};

struct FaultMapping {
  std::string name;         // a path, "[stack]", "[vdso]"; "": anonymous memory
  std::string permissions;  // "r-x"
  // Inside: bytes from its start to the address; below: from its end to the address; above: from the address to its
  // start.
  std::uint64_t distance = 0;
  bool operator==(const FaultMapping&) const = default;
};

struct FaultPlace {
  FaultRegion region = FaultRegion::kUnmapped;
  bool executed = false;                     // the address is the one that the thread was to execute
  std::optional<FaultMapping> mapping;       // kMapped
  std::optional<FaultMapping> below, above;  // kUnmapped: the nearest mappings
  bool operator==(const FaultPlace&) const = default;
};

// The instruction that a thread could not execute, and the registers that its memory operand is made of.
struct FaultInstruction {
  std::string text;                                              // "mov rdx, qword ptr [rax+0x10]", Intel's notation
  std::string bytes;                                             // "48 8b 50 10"
  std::vector<std::pair<std::string, std::uint64_t>> registers;  // "rax", 0; in the order of the operand
  bool operator==(const FaultInstruction&) const = default;
};

}  // namespace model
}  // namespace rankstacks
