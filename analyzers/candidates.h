// Where a verdict is undecided: whom to look at first, and what would decide. Candidates accuse nobody.
#pragma once

#include <vector>

#include "analyzers/analysis.h"
#include "analyzers/facts.h"

namespace rankstacks {

// Best first, kMaxCandidates at most: ranks that others wait for before those that nobody is seen to need, those that stand still before those that move.
inline constexpr std::size_t kMaxCandidates = 8;
std::vector<Candidate> candidates_of(const Facts& facts);

}  // namespace rankstacks
