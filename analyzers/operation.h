// What a thread waits in, as a value. Decisions compare these values; the name for display does not matter to any of
// them.
#pragma once

#include <string>
#include <string_view>

#include "known/kinds.h"

namespace rankstacks::analyzers {

// The collective that a function's name denotes, in any library's spelling: all_reduce, ncclAllReduce, MPI_Allreduce,
// _allgather_base, broadcast_object_list.
known::Collective collective_of_call(std::string_view function);
// Whether that is all that the name says, without its class and arguments: "Comm::allreduce(double&)", "_barrier"; not
// "gather_statistics".
bool is_named_as_collective(std::string_view function);

// If two ranks are in the same operation, all members but `name` are equal.
struct Operation {
  known::OperationKind kind = known::OperationKind::kNone;
  known::Collective collective = known::Collective::kUnknown;
  // Messages only. A send-and-receive does both; both are false if it is not known (a Work, a request)
  bool sends = false, receives = false;
  // The function that was called, as the library spells it: "all_gather_object".
  std::string call;
  std::string name;      // for display: "all_gather_object", "DDP's gradient all-reduce"
  bool generic = false;  // many operations share `call`; which of them it is, is not known

  bool is_none() const { return kind == known::OperationKind::kNone; }
  // The operation as the key of a table.
  std::string key() const;
};
bool same_call(const Operation& a, const Operation& b);

// A collective or a message, given the function that was called.
Operation operation_of_call(known::OperationKind kind, std::string function, std::string name = "");
// An operation that its kind describes completely: a queue, a lock, an event loop.
Operation operation_of_kind(known::OperationKind kind, std::string name);

}  // namespace rankstacks::analyzers
