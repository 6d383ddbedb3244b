// All ranks wait, but not alike: finds the ranks that cause this.
//
//     another operation under one number of a group, or a rank     decided by PyTorch's Flight Recorder, the most precise
//     that has not called it                                       evidence (flight_records.h); then by the watchdogs'
//                                                                   texts (watchdog_text.h)
//     sends and receives without a matching call of the peer        unmatched-p2p
//     groups whose members wait for each other in a circle          process-group-order (if one of them is the
//                                                                   group of all ranks: collective-mismatch)
//     the same code at an earlier step                              behind
//     ranks that all wait for their GPUs                            decided by NCCL's counts (launches.h)
//     another collective, or another group                          collective-mismatch; store-wait for those in
//                                                                   the store
//
// If no group is known that all ranks share, but the pipeline's stages are known, ranks are compared within each
// stage, because stages differ by design. The smaller side is accused. If there are two sides of equal size, both are
// accused, since neither is the odd one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analyzers/facts.h"

namespace rankstacks::analyzers {

struct Blame {
  std::size_t state = 0;
  Reason reason = Reason::kNone;
  double confidence = 0;
};

struct Deadlock {
  std::vector<Blame> suspects;  // empty if it cannot be determined; then `explanation` says why
  // The sides, as a sentence without its end, shown along with the suspects, or instead of them.
  std::string explanation;
  bool sides_are_equal = false;
  std::string reference;  // Verdict::reference
  // Those that wait may be in a long step of their GPUs instead: more samples would show it.
  bool may_be_a_step = false;
  std::vector<std::size_t> candidates;  // indices of states: some of these are in the wrong, if there are no suspects
};

// Accuses one side, or, of two that are equal, both, for a disagreement that is known from other evidence than stacks.
Deadlock accuse_side(const std::vector<std::size_t>& members, Reason reason, std::string explanation, bool equal);

// The smaller of two sides, for `where` ("operation 4 of group 0"), which is something else for each of them.
struct DifferentOperation {
  std::vector<std::size_t> members;  // indices of states
  std::string operation;             // "all_reduce of 1024 Float"
};
Deadlock accuse_smaller_side(const JobSnapshot& job, const std::vector<RankState>& states, const std::string& where,
                             const DifferentOperation& a, const DifferentOperation& b);

// std::nullopt if they all wait alike.
std::optional<Deadlock> explain_deadlock(const Facts& facts);

}  // namespace rankstacks::analyzers
