// The operations that ranks wait in, and whom each of them still needs.
//
// A collective needs every member of its group that is not in the same collective; a send or receive its peer, unless that does the matching one; a
// wait in the store all that are not there. Where frames and memory do not name the group or the peer, all ranks are taken. Ranks that wait alike are
// in one operation, so that a thousand of them cost no more than a few:
//
//     operation 0: ranks 0-6, all_reduce of group 0   needs {7}
//     rank 7: elsewhere                                a sink: the reason
//
//     operation 0: ranks 0,2, all_reduce of group 1    needs operation 1
//     operation 1: ranks 1,3, all_reduce of group 2    needs operation 0: a cycle
//
// These are facts; what follows from them is asked of the graph that they are nodes of (wait_graph.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks {

struct PendingOperation {
  std::vector<std::size_t> members;      // indices into the states
  std::vector<std::size_t> operations;   // pending ones whose members it needs, by index
  std::vector<std::size_t> elsewhere;    // states that it needs and that wait in none; those that have ended among them
  std::vector<int> unseen;               // ranks that it needs and that were not looked at, or could not be read
  bool certain = false;                  // whom it needs is known: a group with its members, or a peer
};

// Of states that are readable and not unrelated.
std::vector<PendingOperation> pending_operations(const JobSnapshot& job, const std::vector<RankState>& states);

// Each is of a group whose members are known, or with a known peer.
bool all_certain(const std::vector<PendingOperation>& operations);

// torch.distributed numbers its groups; this is the one of all ranks.
inline constexpr std::string_view kDefaultGroup = "0";

// What goes behind "waits": "in all_reduce", "in all_reduce of group 1 (ranks 0,2)", "in recv from rank 3", "for the GPU"
std::string describe_wait(const RankState& state, std::size_t ranks_in_all);

}  // namespace rankstacks
