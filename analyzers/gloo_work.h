// The collectives that gloo's threads run for a rank. A call with async_op=True leaves no frame of its own: the thread
// that waits for it shows the wait alone, and the rank's worker threads (ProcessGroupGloo::runLoop) what they run.
#pragma once

#include <string>
#include <vector>

#include "known/kinds.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Their names ("allgather", "barrier"), sorted; one for each thread that is inside of one. A thread that waits for an
// earlier collective to end, as one with a barrier does, runs none. `roles` are those of the rank's threads.
std::vector<std::string> collectives_in_gloo(const FrameTable& frames, const RankSnapshot& rank,
                                             const std::vector<known::Role>& roles);

// Whether they are seen to move data: a worker is in a collective and waits for none of its buffers, or the thread that
// serves gloo's connections reads or writes one. In a hang none does.
bool gloo_moves_data(const FrameTable& frames, const RankSnapshot& rank, const std::vector<known::Role>& roles);

}  // namespace rankstacks::analyzers
