// Where the address of a fault lies among the mappings of its process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

}  // namespace model
}  // namespace rankstacks
