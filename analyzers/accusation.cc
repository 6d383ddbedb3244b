#include "analyzers/accusation.h"

#include <utility>

#include <fmt/format.h>

#include "analyzers/sides.h"

namespace rankstacks::analyzers {

Deadlock accuse_side(const std::vector<std::size_t>& members, Reason reason, std::string explanation, bool equal) {
  Deadlock found;
  for (const std::size_t i : members) found.suspects.push_back({i, reason, equal ? kPartnersGuessed : kPartnersKnown});
  found.explanation = std::move(explanation);
  found.sides_are_equal = equal;
  return found;
}

Deadlock accuse_smaller_side(const JobSnapshot& job, const std::vector<RankState>& states, const std::string& where,
                             const DifferentOperation& a, const DifferentOperation& b) {
  bool equal = false;
  const Side accused = smaller_side(a.members, b.members, equal);
  return accuse_side(accused, Reason::kCollectiveMismatch,
                     fmt::format("{} is {} for {}, and {} for {}", where, a.operation,
                                 name_side(job, states, a.members), b.operation, name_side(job, states, b.members)),
                     equal);
}

Deadlock undecided(std::string why) {
  Deadlock found;
  found.explanation = std::move(why);
  return found;
}

Deadlock with_reference(Deadlock found, std::string reference) {
  if (found.reference.empty()) found.reference = std::move(reference);
  return found;
}

}  // namespace rankstacks::analyzers
