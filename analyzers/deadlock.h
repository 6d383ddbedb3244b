// All wait, not all alike: which of them is why.
//
//   sends and receives whose peer does no such thing              unmatched-p2p
//   groups whose members wait for each other in a circle          process-group-order (one of them all ranks: collective-mismatch)
//   the same code, an earlier step                                behind
//   ranks that all wait for their GPUs                            as NCCL's counts tell (launches.h)
//   another collective, or another group                          collective-mismatch; store-wait for those in the store
//
// Where no group is known that all ranks share, but the stages of a pipeline are, the sides are those within each stage: stages differ by design.
// Accused is the smaller side; where there are two of equal size, both: neither is the odd one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analyzers/facts.h"

namespace rankstacks {

struct Blame {
  std::size_t state = 0;
  Reason reason = Reason::kNone;
  double confidence = 0;
};

struct Deadlock {
  std::vector<Blame> suspects;           // empty: it cannot be told, and `explanation` says why
  std::string explanation;               // the sides, as a sentence without its end: what is shown beside the suspects, or in place of them
  bool sides_are_equal = false;
  std::string reference;                 // Verdict::reference
};

// Nothing: they all wait alike.
std::optional<Deadlock> explain_deadlock(const Facts& facts);

// "ranks 0-1,3 wait in all_reduce (step at train.py:17)"
std::string describe_side(const JobSnapshot& job, const std::vector<RankState>& states, const std::vector<std::size_t>& members);

}  // namespace rankstacks
