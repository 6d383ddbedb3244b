// The operations that ranks wait in, and which ranks each of them still needs.
//
// A collective needs every member of its group that is not in the same collective. A send or receive needs its peer,
// unless the peer does the matching one. A wait in the store needs all ranks that are not in it. If frames and memory
// do not name the group or the peer, it is assumed to need all ranks. Ranks that wait alike are in one operation, so
// that a thousand of them cost no more than a few:
//
//     operation 0: ranks 0-6, all_reduce of group 0   needs {7}
//     rank 7: elsewhere                                a sink: the reason
//
//     operation 0: ranks 0,2, all_reduce of group 1    needs operation 1
//     operation 1: ranks 1,3, all_reduce of group 2    needs operation 0: a cycle
//
// These are facts; conclusions are drawn from the graph in which they are nodes (wait_graph.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "analyzers/gone_ranks.h"
#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

struct PendingOperation {
  std::vector<std::size_t> members;     // indices into the states
  std::vector<std::size_t> operations;  // indices of the pending operations whose members it needs
  std::vector<std::size_t> elsewhere;   // states that it needs and that wait in none, including those that have ended
  std::vector<int> unseen;              // ranks that it needs and that were not captured, or could not be read
  bool certain = false;                 // the ranks it needs are known: a group with its members, or a peer
};

// The operations of all states that are readable and not unrelated.
std::vector<PendingOperation> pending_operations(const JobSnapshot& job, const std::vector<RankState>& states,
                                                 const MissingRanks& missing);

// The member (an index into the states) that tells most about the operation: one whose watchdog names it, if any.
std::size_t representative_of(const PendingOperation& operation, const std::vector<RankState>& states);

// Whether each of them belongs to a group whose members are known, or has a known peer.
bool all_certain(const std::vector<PendingOperation>& operations);

// The name of the group of all ranks; torch.distributed numbers its groups.
inline constexpr std::string_view kDefaultGroup = "0";

// The continuation of "waits": "in all_reduce", "in all_reduce of group 1 (ranks 0,2)", "in recv from rank 3", "for
// the GPU", "in all-gather 38 of group default_pg" (by its watchdog).
std::string describe_wait(const RankState& state, std::size_t ranks_in_all);

}  // namespace rankstacks::analyzers
