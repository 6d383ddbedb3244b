// Finds the cores of processes that belong to a rank: its loader and compile workers.
#pragma once

#include <optional>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::capture {

struct CoreProcess {
  RankSnapshot* snapshot = nullptr;
  std::optional<Pid> parent;  // NT_PRPSINFO: the parent's pid when the core was taken
};

// A worker inherits its rank's environment, and with it the rank's number. So a core with the same number and host,
// whose parent is another of the cores, becomes a child of that rank; a core whose parent is not among them stays a
// rank.
void adopt_children(const std::vector<CoreProcess>& cores);

}  // namespace rankstacks::capture
