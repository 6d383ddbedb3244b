// What NCCL says of its communicators apart from counts, as RAS gives it of each member: the error that its threads
// have met (async_error), and whether it was aborted or is being finalized.
//
//     ncclInvalidUsage    over sockets: a peer has sent more than this member's call takes. Their calls differ, but
//                         either may be the odd one: whoever takes less has the error, right or wrong. It lasts: the
//                         thread that moves the data has ended, and the communicator finishes nothing any more.
//     ncclRemoteError     a peer has closed its connection. It speaks of that peer, never of the member that has it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "analyzers/sides.h"
#include "analyzers/waiting_job.h"

namespace rankstacks::analyzers {

// A communicator whose members all wait for each other, in calls that do not fit.
struct Misfit {
  Side members;   // indices of states, ascending
  Side have_met;  // those of them that have ncclInvalidUsage
};

// std::nullopt if none of them has that error; if its members are not all among those that wait, or have launched
// different numbers of collectives or go on to, so that it need not be what they wait in; or if communicators of other
// ranks have the error as well, as those that share a process's resources do (ncclCommSplit, splitShare).
std::optional<Misfit> find_misfit(const JobSnapshot& job, const std::vector<RankState>& states);

// Both of two members; of more, nobody: the error does not tell whose call is the odd one.
Deadlock explain_misfit(const WaitingJob& waiting, const Misfit& misfit);

// Whether the rank of this number does not answer in NCCL's communicator of all ranks, while another member of it has
// lost a connection.
bool is_lost_peer(const JobSnapshot& job, int number);

// "communicator of ranks 0-1: ncclInvalidUsage at rank 1 (a peer has sent more than ...)": one for each communicator
// and error, and for those that some have aborted or finalized. Not sanitized.
std::vector<std::string> describe_communicator_errors(const JobSnapshot& job);

}  // namespace rankstacks::analyzers
