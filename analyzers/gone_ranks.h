// Ranks that are not there, and those that have crashed.
#pragma once

#include <cstddef>
#include <vector>

#include "known/kinds.h"
#include "model/snapshot.h"

namespace rankstacks {

struct MissingRanks {
  std::vector<int> certain;    // gone, or not looked at on a machine that was looked at
  std::vector<int> alive;      // they run on a machine that was looked at (JobSnapshot::not_looked_at)
  std::vector<int> elsewhere;  // whole machines' worth of ranks: most likely not looked at
};
// By the world size and the ranks seen. Ranks are laid out in equal blocks per machine (torchrun, srun --ntasks-per-node): missing ranks
// that fill whole blocks of the size seen are on machines nobody looked at.
MissingRanks missing_ranks(const JobSnapshot& job);

// The ranks whose core's fatal signal tells them apart from the others.
std::vector<std::size_t> crashed_ranks(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles);

}  // namespace rankstacks
