// A comparison's values in words: those of the JSON form, and the sentences that both forms have.
#pragma once

#include <string>
#include <string_view>

#include "diff/job_diff.h"

namespace rankstacks::diff {

std::string_view to_string(Outcome outcome);    // "partly-moved"
std::string_view to_string(Movement movement);  // "stood"
std::string_view to_string(MovedBy by);         // "counter"
std::string_view to_string(Match match);        // "process"
std::string_view to_string(Absence absence);    // "not-examined"
std::string_view to_string(ClusterFate fate);   // "came"
std::string_view to_string(CounterKind kind);   // "nccl-launches"
std::string_view to_string(Setting setting);    // "world-size"

// "5 min 12 s", "0.9 s", "3 h 5 min"
std::string duration_text(double ms);

// "rank 2 has moved; ranks 0-1,3 stand where they stood 5 min 12 s ago, and have not run". Not sanitized.
std::string summary_of(const Sides& sides, const JobDiff& diff);

}  // namespace rankstacks::diff
