// What a thread waits in, as a value: the decisions compare these, and the name for people is of no weight in any.
#pragma once

#include <string>
#include <string_view>

#include "known/kinds.h"

namespace rankstacks {

// Of a function's name, in any library's spelling: all_reduce, ncclAllReduce, MPI_Allreduce, _allgather_base, broadcast_object_list.
Collective collective_of_call(std::string_view function);

// One operation in two ranks is equal in all but `name`.
struct Operation {
  OperationKind kind = OperationKind::kNone;
  Collective collective = Collective::kUnknown;
  bool sends = false, receives = false;    // of messages: a send-and-receive does both; of a Work or a request neither is known
  std::string call;                        // the function that was called, in the spelling of the library's interface: "all_gather_object"
  std::string name;                        // for people: "all_gather_object", "DDP's gradient all-reduce"
  bool generic = false;                    // `call` is one that many operations share: which of them it is, is not known

  bool is_none() const { return kind == OperationKind::kNone; }
  // As the key of a table.
  std::string key() const;
};
bool same_call(const Operation& a, const Operation& b);

// A collective or a message by the function that was called.
Operation operation_of_call(OperationKind kind, std::string function, std::string name = "");
// One whose kind says all: a queue, a lock, an event loop.
Operation operation_of_kind(OperationKind kind, std::string name);

}  // namespace rankstacks
