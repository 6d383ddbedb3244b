// Values that name the very rank that has them: "/scratch/rank-3/log" on rank 3, "10.0.0.1:29503" where rank 0 has
// "10.0.0.1:29500". They differ between ranks, and mean the same.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Whether the values of these ranks are the same when each of them may name its own rank: by its number in the job, or,
// in all of them, by that on the host; by its pid; by its host; by a port that is its number away from that of rank 0.
// Values that are only numbers are quantities, and name no rank.
bool differ_by_own_names_alone(const JobSnapshot& job, const std::vector<std::size_t>& ranks,
                               const std::vector<std::string_view>& values);

}  // namespace rankstacks::analyzers
