// How certain it is that a suspect is to blame, given what is known of it and of the waits that lead to it. The
// tables are in confidence.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// The ranks, sorted by what they do.
struct Tally {
  std::vector<std::size_t> waiting, elsewhere, unknown;  // indices into the states
  std::vector<std::size_t> needed;                       // states that are elsewhere and that a waiting rank needs
  std::vector<std::size_t> ended, failed,
      partial;                             // indices into the ranks; ended: zombies and processes that are gone
  std::vector<std::size_t> unrelated;      // indices into the ranks
  std::vector<std::size_t> gpu_only;       // indices into the states
  std::vector<std::size_t> recorded_only;  // indices into the states; they are among `failed`, too
  std::size_t compared = 0;                // number of states that are not unrelated
  bool waits_for_gpu_only = true;
  bool inferred = false;  // some wait is concluded from what most ranks do
};

// The confidence for a rank that is needed and waits for no other: the first row of the first table that holds, plus
// all rows of the second that hold.
double confidence_of_sink(const JobSnapshot& job, const RankState& s, const Tally& tally);
// Limited to 0.10 ... 0.97, rounded to two digits.
double bounded(double confidence);

}  // namespace rankstacks::analyzers
