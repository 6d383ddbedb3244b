// How sure it is that a suspect is one: by what is known of it, and of the waits that lead to it. The tables are in confidence.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks {

// Who stands how.
struct Tally {
  std::vector<std::size_t> waiting, elsewhere, unknown;    // indices into the states
  std::vector<std::size_t> needed;                         // those elsewhere that somebody who waits needs
  std::vector<std::size_t> ended, failed, partial;         // indices into the ranks; ended: zombies and processes that are gone
  std::vector<std::size_t> unrelated;                      // indices into the ranks
  std::vector<std::size_t> gpu_only;                       // indices into the states
  std::size_t compared = 0;                                // states that are not unrelated
  bool waits_for_gpu_only = true;
  bool inferred = false;                                   // that some wait is concluded from what most do
};

// Of a rank that is needed and waits for none: one row of the first table, and all rows of the second that hold.
double confidence_of_sink(const JobSnapshot& job, const RankState& s, const Tally& tally);
// Within 0.10 and 0.97, to two digits.
double bounded(double confidence);

}  // namespace rankstacks
