// How sure it is that a suspect is one.
#pragma once

#include <cstddef>
#include <vector>

#include "analyzers/standing.h"

namespace rankstacks {

// Who stands how.
struct Tally {
  std::vector<std::size_t> waiting, elsewhere, unknown;    // indices into the standings
  std::vector<std::size_t> needed;                         // those elsewhere that somebody who waits needs
  std::vector<std::size_t> ended, failed, partial;         // indices into the ranks; ended: zombies and processes that are gone
  std::vector<std::size_t> strangers;                      // indices into the ranks
  std::vector<std::size_t> gpu_only;                       // indices into the standings
  bool waits_for_gpu_only = true;
  bool inferred = false;                                   // that some wait is concluded from what most do
};

// By how it is known what the suspect does: a frame or a state, a system call or a lock, what is left over, its GPU.
double base_confidence(const Standing& s);
// The base, less what is open and more what was seen again: the list at the head of verdict.cc.
double confidence_for(const JobSnapshot& job, const Standing& s, const Tally& tally, std::size_t ranks, double base);
// Within 0.10 and 0.97, to two digits.
double bounded(double confidence);

}  // namespace rankstacks
