// Ranks that all wait, some of them for a peer: in sends and receives without a matching call, or for each other's
// locks.
#pragma once

#include <optional>

#include "analyzers/waiting_job.h"

namespace rankstacks::analyzers {

// Each rank waits for what the next one holds or should send: two ranks that take the locks of two files in
// opposite order, two that both receive.
std::optional<Deadlock> circle_of_peers(const WaitingJob& waiting);

// Sends or receives whose peer makes no matching call. std::nullopt if no rank is in a send or receive.
std::optional<Deadlock> unmatched_messages(const WaitingJob& waiting);

}  // namespace rankstacks::analyzers
