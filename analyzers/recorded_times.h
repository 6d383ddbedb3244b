// When the ranks have called their operations, as PyTorch's Flight Recorder has written it down: a rank that has called
// nothing for much longer than ever before is not between two steps.
#pragma once

#include <string>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// By a record of this time, the rank's last call was ten times as long ago as the longest time between two calls of the
// newer half of the record, and 10 s at least. (A first evaluation or checkpoint takes as long, too: whether the rank,
// or those for which it waits, move, is another question.)
bool is_silent(const RankSnapshot& rank);

// By a record of this time, the rank went for longer without a call before, and then went on: this may be such a step.
bool has_paused_for_longer(const RankSnapshot& rank);

// "ranks 0-2 have called nothing for 62 to 64 s; before, never for more than 2.1 s"; "" if no rank is silent.
std::string describe_silence(const JobSnapshot& job);

}  // namespace rankstacks::analyzers
