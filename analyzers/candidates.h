// If a verdict is undecided: which ranks to examine first, and what would decide. Candidates are not accused of
// anything.
#pragma once

#include <vector>

#include "analyzers/analysis.h"
#include "analyzers/facts.h"

namespace rankstacks::analyzers {

// Best first, at most kMaxCandidates: ranks that others wait for come before ranks that no one is seen to need, and
// ranks that make no progress before those that move.
inline constexpr std::size_t kMaxCandidates = 8;
std::vector<Candidate> candidates_of(const Facts& facts);

}  // namespace rankstacks::analyzers
