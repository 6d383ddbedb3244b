// Ranks that wait for another rank through a queue, a pipe, a socket, a file lock or an SQLite database of their own,
// not through a library for collectives. Known from the frames of multiprocessing, or from the kernel, which
// identifies the process at the other end.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"
#include "model/families.h"

namespace rankstacks::analyzers {

// For processes that no launcher has numbered: turns a wait in multiprocessing's queues, pipes and locks into a wait
// for another of these processes (Activity::kPeerWait).
void find_peer_waits(const JobSnapshot& job, std::vector<RankState>& states);

// What a rank has connected to as its store, and what does not answer, may be none of the job's processes, although a
// rank serves a store: it waits for that program alone, as for any server (Activity::kNetworkIo). Any other wait for a
// store's first answer is a wait in the store.
void leave_other_stores(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                        std::vector<RankState>& states);

// Turns a wait at a pipe, socket or file lock into a wait for the rank at its other end (Activity::kPeerWait,
// RankState::peer_process). Only if the other end belongs to exactly one rank, and if the frames do not show that
// this rank (or the one that it waits for in the same way) waits for other ranks in a library. (A rank that asks a
// server in a rank that has arrived in a collective is what that collective lacks, unless that is, by the Flight
// Recorder, of a group of other ranks.) A loader worker's wait for a lock
// is its rank's. If the holder is a child of a rank that waits for ranks, that child is what keeps them: the rank then
// does what the child does (RankState::holds_by_child).
void refine_by_other_ends(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                          const Families& families, std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
