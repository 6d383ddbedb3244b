// Ranks that end while they are looked at: what was read of them before is in the report, and that it is past.
#pragma once

#include "model/snapshot.h"

namespace rankstacks::capture {

// Whether a thread of the process that was looked at still runs.
bool is_alive(const RankSnapshot& rank);

// Marks the ranks of a live look that were read and have ended since: each is partial, with a problem that says so.
void note_ended(JobSnapshot& job);

}  // namespace rankstacks::capture
