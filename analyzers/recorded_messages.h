// Which messages of a group hold each other up, by what PyTorch's Flight Recorder has of its ranks: each rank's
// messages have to end in the order in which it has called them, and a message ends when its peer comes to its
// counterpart.
//
//     rank 0: [send to 1, receive from 1] ...        rank 1: [receive from 0] [receive from 0] ... [send to 0]
//     The first send and receive meet. Then rank 0 waits for a message that rank 1 sends only after it has received more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "model/flight_record.h"

namespace rankstacks::analyzers {

inline bool is_pending(const RecordedOperation& operation) { return operation.state != RecordedState::kCompleted; }

// "send 0->1", "recv 1<-0": the other rank, by its place in the group.
std::optional<std::size_t> peer_in(const RecordedOperation& message);

// What has to end at once: one collective, or the messages of one batch.
struct RecordedStep {
  std::int64_t number = 0;
  bool is_collective = false;
  std::vector<const RecordedOperation*> messages;
};

struct Exchange {
  const RecordedGroup* group = nullptr;  // as its rank has recorded it
  std::vector<RecordedStep> steps;       // what it has called and not ended; the first is what it waits in
};
using Exchanges = std::map<std::size_t, Exchange>;  // by the rank's place in the group

// What is left when all messages that meet are taken away, until nothing meets any more.
Exchanges stuck_exchanges(const std::map<std::size_t, const RecordedGroup*>& groups);

// The places of the ranks that have to call a message for which this one waits, and have not come to it; empty if one
// of them is not known. Of a batch that has ended in part, those that ended are not known: a peer that has called as
// many batches is not the one.
std::vector<std::size_t> peers_without(const Exchange& one, const Exchanges& at);

// Whether the ranks that this one needs need it, directly or by others.
bool is_in_circle(std::size_t place, const std::map<std::size_t, std::set<std::size_t>>& needs);

}  // namespace rankstacks::analyzers
