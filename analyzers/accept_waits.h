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
void refine_by_accepts(const JobSnapshot& job, std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
