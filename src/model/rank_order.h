// The order of the ranks of a job: by number, then those without a number by host and pid; children after their rank,
// by pid.
#pragma once

#include <cstddef>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks {
inline namespace model {

// Returns the indices of the ranks in that order, in whatever order the processes, cores or reports were given: equal
// jobs give equal reports.
std::vector<std::size_t> rank_order(const std::vector<const RankSnapshot*>& ranks);

}  // namespace model
}  // namespace rankstacks
