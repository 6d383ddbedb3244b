// Formats sets of ranks as people write them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks {
inline namespace model {

// "0-1,3-7"; ranks without a number by host and pid after the numbers: "0-2,node-a:4711". At most `limit` items, then
// "and 12 more".
std::string format_rank_set(const JobSnapshot& job, const std::vector<std::size_t>& ranks, std::size_t limit = 16);
std::string format_numbers(std::vector<int> numbers, std::size_t limit = 16);

// "rank 2", "ranks 0-1,3-7"
std::string name_ranks(const JobSnapshot& job, const std::vector<std::size_t>& ranks, std::size_t limit = 16);

}  // namespace model
}  // namespace rankstacks
