// What the texts of PyTorch's NCCL watchdogs (timed_out_work.h) show of ranks that all wait.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "analyzers/accusation.h"

namespace rankstacks::analyzers {

// Whether NCCL found that ranks have called a collective with different sizes: a message did not fit where the other
// rank expected it ("message truncated", of NCCL 2.28's socket transport).
bool says_other_size(std::string_view text);

// Ranks that wait, and whose watchdogs name different operations, or different sizes, under one number of one group.
// std::nullopt if there are no such texts.
std::optional<Deadlock> explain_by_watchdogs(const JobSnapshot& job, const std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
