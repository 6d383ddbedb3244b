#include "known/c10d_operations.h"

#include <algorithm>
#include <array>

namespace rankstacks::known {
namespace {

using K = OperationKind;

// clang-format off
// Source: torch/csrc/distributed/c10d/Work.cpp, opTypeToString; as of 2.11.
constexpr std::array<C10dOperation, 19> kOperations{{
    {"BROADCAST", "broadcast", K::kCollective, true},
    {"ALLREDUCE", "all-reduce", K::kCollective, true},
    {"ALLREDUCE_COALESCED", "coalesced all-reduce", K::kCollective, true},
    {"_ALLREDUCE_SPARSE", "sparse all-reduce", K::kCollective, false},
    {"REDUCE", "reduce", K::kCollective, true},
    {"ALLGATHER", "all-gather", K::kCollective, true},
    {"_ALLGATHER_BASE", "all-gather", K::kCollective, true},
    {"ALLGATHER_COALESCED", "coalesced all-gather", K::kCollective, false},
    {"GATHER", "gather", K::kCollective, false},
    {"SCATTER", "scatter", K::kCollective, false},
    {"REDUCE_SCATTER", "reduce-scatter", K::kCollective, true},
    {"_REDUCE_SCATTER_BASE", "reduce-scatter", K::kCollective, true},
    {"ALLTOALL", "all-to-all", K::kCollective, false},
    {"ALLTOALL_BASE", "all-to-all", K::kCollective, false},
    {"BARRIER", "barrier", K::kCollective, false},
    {"SEND", "send", K::kMessage, false},
    {"RECV", "receive", K::kMessage, false},
    {"RECVANYSOURCE", "receive", K::kMessage, false},
    {"COALESCED", "coalesced operation", K::kNone, false},  // batch_isend_irecv, several collectives in one
}};
// clang-format on

}  // namespace

const C10dOperation* c10d_operation(std::string_view type) {
  const auto found = std::find_if(kOperations.begin(), kOperations.end(),
                                  [&](const C10dOperation& operation) { return operation.type == type; });
  return found == kOperations.end() ? nullptr : &*found;
}

}  // namespace rankstacks::known
