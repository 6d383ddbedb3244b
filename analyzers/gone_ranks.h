// Ranks that do not exist any more or were not captured, and ranks that have crashed.
#pragma once

#include <cstddef>
#include <vector>

#include "known/kinds.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

struct MissingRanks {
  std::vector<int> certain;    // gone, or not captured although their machine was
  std::vector<int> alive;      // they run on a machine that was captured (JobSnapshot::not_looked_at)
  std::vector<int> elsewhere;  // the ranks of whole machines, most likely not captured
};
// Determined from the world size and the ranks that were captured. Launchers number ranks in equal blocks per machine
// (torchrun, srun --ntasks-per-node), so missing ranks that fill whole blocks of that size are on machines that were
// not captured.
MissingRanks missing_ranks(const JobSnapshot& job);

// The ranks whose core has a fatal signal that the others' cores do not have, and that no other rank has caused: a rank
// that ends because another one's connection has broken, or because another one did not come, follows from that.
std::vector<std::size_t> crashed_ranks(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                       const MissingRanks& missing);

}  // namespace rankstacks::analyzers
