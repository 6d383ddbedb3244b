// How ranks move between several samples.
#pragma once

#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// A job that is sampled for longer than this has finished a step, as a rule.
inline constexpr double kLongerThanStepsMs = 4000;

// Whether the thread was on a processor for a good part of the samples: it works or spins, and does not only wake up
// now and then. On a machine with too few processors a thread that is ready to run, and runs for long whenever it is
// given one, is busy, however little time it got.
bool is_busy(const ThreadSnapshot& thread);

// Fills RankState::progress, counts, left_wait, travels and busy from the motion of the threads that show what the
// rank does.
void find_progress(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles, RankState& state);

}  // namespace rankstacks::analyzers
