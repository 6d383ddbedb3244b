// Ranks that all wait at different places, where nothing else decides: the sides are compared by their size, and by how
// far they have come.
#pragma once

#include <optional>

#include "analyzers/waiting_job.h"

namespace rankstacks::analyzers {

// Accuses all sides but the one with the majority; of two that are equal, the one that is behind, or both. There is at
// least one side.
Deadlock between_sides(const WaitingJob& waiting, Reason reason, double confidence);

// The ranks of one pipeline stage are alike. Another stage is not comparable with them, unless all ranks wait in one
// group. std::nullopt if stages do not count; without suspects if no rank differs from the others of its stage.
std::optional<Deadlock> within_stages(const WaitingJob& waiting);

}  // namespace rankstacks::analyzers
