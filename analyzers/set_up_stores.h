// Ranks that all set up one communicator, some of them still in the rendezvous store.
#pragma once

#include <optional>

#include "analyzers/waiting_job.h"

namespace rankstacks::analyzers {

// A communicator is set up in two steps: the ranks exchange by the store how they are reached (NCCL's id, gloo's
// addresses), then they connect. A rank that connects has published its own, so a rank of the same group that still
// waits in the store does not find there what the others have found: its store is not theirs (a file that is not
// shared, another server). Sources: pytorch c10d/ProcessGroupNCCL.cpp (broadcastUniqueNCCLID, then ncclCommInitRank),
// gloo/rendezvous/context.cc (all addresses are waited for, then the pairs connect).
std::optional<Deadlock> without_the_others_store(const WaitingJob& waiting);

}  // namespace rankstacks::analyzers
