// What the threads that move NCCL's data over a network show of ranks that all wait: each rank has such a thread for
// each communicator that needs one (ncclProxyProgress), which sleeps as long as the rank has launched nothing that is
// left to be moved. A rank whose thread is at work waits for data of an operation that has begun; one all of whose
// threads sleep has not launched that operation, unless it needed no network there.
#pragma once

#include <optional>

#include "analyzers/waiting_job.h"

namespace rankstacks::analyzers {

// Accuses the ranks, fewer than the others, that have nothing to move while the others have, or the other way round.
// std::nullopt if a rank has no such thread, or if they do not differ.
std::optional<Deadlock> explain_by_network_threads(const WaitingJob& waiting);

}  // namespace rankstacks::analyzers
