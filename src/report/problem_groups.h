// The problems of all ranks, each once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::report {

struct ProblemGroup {
  const Problem* problem = nullptr;  // of the snapshot: the first of them
  // The problem's, without the pid if several ranks have it: "--pids PID" in the hint. "": there is no hint.
  std::string message, hint;
  std::vector<std::size_t> ranks;  // indices into JobSnapshot::ranks, ascending
};

// In the order in which the ranks have them. Those that differ only in the pids of their ranks are one.
std::vector<ProblemGroup> problem_groups(const JobSnapshot& job);

}  // namespace rankstacks::report
