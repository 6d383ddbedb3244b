// Names of variables that show how far a program has come.
#pragma once

#include <string_view>

namespace rankstacks::known {

// A loop counter, which ranks that do the same have in common: step, batch_idx, i. Counts of other things and totals
// are not: num_steps, epoch_size, rank_idx.
bool is_counter_name(std::string_view name);

// The number of something that a loop goes over, one after the other: sample_number, shard, task. Ranks have different
// ones, so that these are compared over time only. A number of attempts is none: it grows where nothing else does.
bool is_position_name(std::string_view name);

}  // namespace rankstacks::known
