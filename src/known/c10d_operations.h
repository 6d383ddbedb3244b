// The operations of torch's process groups as c10d::OpType names them, in texts of ProcessGroupNCCL.
#pragma once

#include <string_view>

#include "known/kinds.h"

namespace rankstacks::known {

struct C10dOperation {
  std::string_view type;   // "_ALLGATHER_BASE"
  std::string_view words;  // "all-gather"
  OperationKind kind;      // kNone: collectives or messages
  // Whether its number of elements is the same on all ranks. In the others it depends on the rank: on who is the root,
  // or on how much each sends.
  bool has_one_size;
};

// A group's description as far as somebody has given one: new_group() stores "undefined" if it is given none
// (distributed_c10d.py, 2.4 on).
constexpr std::string_view given_description(std::string_view description) {
  return description == "undefined" ? std::string_view() : description;
}

// nullptr if there is no such type.
const C10dOperation* c10d_operation(std::string_view type);

}  // namespace rankstacks::known
