// Ranks that wait for another rank by a queue, a pipe, a socket, a file lock or an SQLite database of their own making, in no library for collectives: by the frames of
// multiprocessing, or by the kernel, which tells who is at the other end.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks {

// Of processes that no launcher has numbered: makes a wait in multiprocessing's queues, pipes and locks a wait for another of them (Activity::kPeerWait).
void find_peer_waits(const JobSnapshot& job, std::vector<RankState>& states);

// Makes a wait at a pipe, socket or file lock a wait for that rank (Activity::kPeerWait, RankState::peer_process): where the other end is one rank's alone, and what that one
// does, or waits for in the same way, is no wait for other ranks that a library's frames tell. (A rank that asks a server in a rank that has arrived in a collective is what
// that collective lacks.)
void refine_by_other_ends(const JobSnapshot& job, std::vector<RankState>& states);

}  // namespace rankstacks
