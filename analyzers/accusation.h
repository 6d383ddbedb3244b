// Which ranks are the cause of a job whose ranks all wait, as one of the rules of deadlock.h has found it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analyzers/facts.h"

namespace rankstacks::analyzers {

// How sure an accusation is, before confidence.h lowers it for what is open.
inline constexpr double kPartnersKnown = 0.80;  // groups or peers are known
inline constexpr double kByPlace = 0.65;
inline constexpr double kByCounts = 0.55;  // by place, and NCCL's counts agree
inline constexpr double kPartnersGuessed = 0.45;
inline constexpr double kEqualSides = 0.40;

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
  // Those that wait may be in a long step instead, of their GPUs or of a slow start: more samples would show it.
  bool may_be_a_step = false;
  std::vector<std::size_t> candidates;  // indices of states: some of these are in the wrong, if there are no suspects
  Reason reason_of_candidates = Reason::kCollectiveMismatch;
  std::string would_decide;   // between the candidates
  bool at_one_place = false;  // without suspects: all wait alike
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

// Without suspects, because of `why`.
Deadlock undecided(std::string why);

// Sets the reference, unless the rule that found this has set a more precise one.
Deadlock with_reference(Deadlock found, std::string reference);

}  // namespace rankstacks::analyzers
