#include "analyzers/collective_roots.h"

#include <algorithm>
#include <map>
#include <utility>

#include "analyzers/shared_rounds.h"

namespace rankstacks::analyzers {
namespace {

// Ranks that wait at one line, by the roots of their collective (the source of a broadcast). Empty if it has none, if
// one is not known, or if the groups differ.
std::map<int, Side> by_root(const WaitingJob& waiting, const Side& side) {
  std::map<int, Side> found;
  for (const std::size_t i : side) {
    const RankState& s = waiting.states[i];
    if (!s.root || !s.group || s.group->ranks.empty() || s.group != waiting.states[side.front()].group) return {};
    found[*s.root].push_back(i);
  }
  return found;
}

// Those whose root is not that of most of the side; all of them if there is no such root, then `equal` is set.
Side with_another_root(const std::map<int, Side>& roots, std::size_t all, bool& equal) {
  equal = std::none_of(roots.begin(), roots.end(), [&](const auto& one) { return one.second.size() * 2 > all; });
  Side others;
  for (const auto& [root, members] : roots)
    if (members.size() * 2 <= all) others.insert(others.end(), members.begin(), members.end());
  std::sort(others.begin(), others.end());
  return others;
}

// In the function that calls the collective there is a `for` loop around it, or a loop further out is in another
// round than that of another rank: ranks may be roots in turn, and this one at another turn.
bool may_take_turns(const WaitingJob& waiting, std::size_t i, std::size_t other) {
  const auto& path = waiting.states[i].path;
  return path.empty() || path.back().loops != 0 ||
         in_different_rounds(waiting.job, waiting.states[i], waiting.states[other]);
}

}  // namespace

std::optional<Deadlock> another_root(const WaitingJob& waiting) {
  bool equal = false;
  const Side accused = with_another_root(by_root(waiting, waiting.sides.front()), waiting.sides.front().size(), equal);
  if (equal || accused.empty()) return std::nullopt;
  Deadlock found = waiting.accuse(accused, Reason::kCollectiveMismatch, kPartnersKnown);
  found.explanation += ", of which another rank is the root";
  return found;
}

std::optional<Deadlock> several_roots_in_one_step(const WaitingJob& waiting) {
  for (const Side& side : waiting.sides) {
    const std::map<int, Side> roots = by_root(waiting, side);
    if (roots.size() < 2) continue;
    bool equal = false;
    const Side accused = with_another_root(roots, side.size(), equal);
    const bool one_step = std::all_of(side.begin(), side.end(), [&](std::size_t i) {
      return in_one_round(waiting.job, waiting.states[i], waiting.states[side.front()]);
    });
    if (!one_step && (equal || std::any_of(side.begin(), side.end(),
                                           [&](std::size_t i) { return may_take_turns(waiting, i, side.front()); })))
      continue;
    std::string explanation = describe_side(waiting.job, waiting.states, side) + ", with different roots in one step";
    if (equal && side.size() < waiting.states[side.front()].group->ranks.size())
      return Deadlock{.suspects = {},
                      .explanation = explanation + "; which of them is right does not show where they stand",
                      .reference = {},
                      .candidates = accused,
                      .would_decide = "what the ranks that have gone on called there"};
    return accuse_side(accused, Reason::kCollectiveMismatch, std::move(explanation), equal);
  }
  return std::nullopt;
}

bool several_roots(const WaitingJob& waiting, const Side& side) {
  return std::any_of(side.begin(), side.end(), [&](std::size_t i) {
    const auto &root = waiting.states[i].root, &first = waiting.states[side.front()].root;
    return root && first && *root != *first;
  });
}

}  // namespace rankstacks::analyzers
