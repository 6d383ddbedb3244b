// Ranks in accept(): a server does not wait for anybody, but a rank whose peers connect to it waits for the one that
// has not done so yet, which is on no stack and has no other end.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// Turns accept() into a wait for the other ranks (Activity::kPeerWait without RankState::peer_process) if some rank
// waits for others, and another one is elsewhere, without a connection to the accepting rank as far as is known, or is
// not there. Not in the loop of a server that a rule knows. If there is no such rank, the accepting rank waits for a
// program outside of the job, and remains as it is.
// A poll of its listening socket is as accept() if a rank that has connected waits for it already.
void refine_by_accepts(const JobSnapshot& job, std::vector<RankState>& states);

// Whether the rank is in such a wait.
bool waits_for_connection(const RankState& s);

}  // namespace rankstacks::analyzers
