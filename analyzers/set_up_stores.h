// Ranks that set up their communicators, some of them still in the rendezvous store.
#pragma once

#include <optional>

#include "analyzers/waiting_job.h"

namespace rankstacks::analyzers {

// A group's communicator is set up in two steps: its first rank publishes NCCL's id in the store, where the others read
// it, and then all connect. If some connect, it has been published, so a rank of the same group that still waits in the
// store does not find there what the others have found: its store is not theirs (a file that is not shared, another
// server). Messages have communicators of two ranks, each with an id of its own: they show nothing of the kind. The
// start of a large job may be slow, which more samples show. Source: pytorch c10d/ProcessGroupNCCL.cpp
// (getNCCLComm, broadcastUniqueNCCLID, then ncclCommInitRank).
std::optional<Deadlock> without_the_others_store(const WaitingJob& waiting);

// Ranks that wait in the store and have not set up NCCL at all, while the others have, and wait for their GPUs: they
// are at the beginning of their program, which the others have long left (one was started anew, or has executed another
// program).
std::optional<Deadlock> before_their_set_up(const WaitingJob& waiting);

}  // namespace rankstacks::analyzers
