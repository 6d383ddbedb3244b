#include "analyzers/between_sides.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "analyzers/collective_roots.h"
#include "analyzers/coordinates.h"
#include "analyzers/divergence.h"
#include "analyzers/place.h"

namespace rankstacks::analyzers {
namespace {

// What a side is accused of, if the other one is right.
Reason reason_of_side(const WaitingJob& waiting, const Side& side, const Side& other, Reason reason) {
  if (waiting.in_store(side.front())) return Reason::kStoreWait;
  if (reason != Reason::kCollectiveMismatch) return reason;
  const Divergence apart = divergence_of(waiting.states[side.front()], waiting.states[other.front()]);
  return apart.a_is_behind() && !apart.a_keeps_step() ? Reason::kBehind : reason;
}

// The user's own code waits for a key of the store, which anybody may set, or nobody. What the library waits for
// there (a new group, a barrier) is set by ranks that make the same call.
bool asks_store_itself(const WaitingJob& waiting, std::size_t i) {
  if (!waiting.in_store(i)) return false;
  const ThreadSnapshot& thread = waiting.job.ranks[waiting.states[i].rank].threads[waiting.states[i].doing.thread];
  for (std::size_t f = waiting.states[i].doing.frame; f < thread.frames.size(); ++f) {
    const Frame& frame = waiting.job.frames[thread.frames[f]];
    if (frame.kind == FrameKind::kPython) return is_users_code(frame);
  }
  return false;
}

// In collectives of MPI, whose communicators are not read: ranks in one and the same call may be in several of them.
bool in_unread_communicators(const WaitingJob& waiting, const Side& side) {
  const RankState& s = waiting.states[side.front()];
  return !s.group && s.doing.activity == known::Activity::kCollective && s.doing.operation.call.starts_with("MPI_");
}

// Accuses all sides but one, which has more than half of the ranks.
Deadlock against_majority(const WaitingJob& waiting, const Side& largest, Reason reason, double confidence) {
  Deadlock found;
  for (const Side& side : waiting.sides) {
    if (&side == &largest) continue;
    const Deadlock one = waiting.accuse(side, reason_of_side(waiting, side, largest, reason), confidence);
    found.suspects.insert(found.suspects.end(), one.suspects.begin(), one.suspects.end());
  }
  found.explanation = describe_side(waiting.job, waiting.states, largest);
  return found;
}

// Two sides of equal size: the one that is at an earlier step, or that asks the store itself; else both.
Deadlock between_equal_sides(const WaitingJob& waiting, const Side& a, const Side& b, Reason reason) {
  const Reason reason_a = reason_of_side(waiting, a, b, reason), reason_b = reason_of_side(waiting, b, a, reason);
  if (reason_a == Reason::kBehind) return waiting.accuse(a, reason_a, kByPlace);
  if (reason_b == Reason::kBehind) return waiting.accuse(b, reason_b, kByPlace);
  if (const bool a_asks = asks_store_itself(waiting, a.front()); a_asks != asks_store_itself(waiting, b.front())) {
    const Side &asks = a_asks ? a : b, &other = a_asks ? b : a;
    if (!waiting.in_store(other.front())) {
      Deadlock found = waiting.accuse(asks, Reason::kStoreWait, kByPlace);
      found.explanation = describe_side(waiting.job, waiting.states, other);
      return found;
    }
  }
  if (several_roots(waiting, a) || several_roots(waiting, b))
    return undecided(waiting.describe_sides() + ": some of them with another root, and ranks may be roots in turn");
  if (a.size() > 1 && (in_unread_communicators(waiting, a) || in_unread_communicators(waiting, b)))
    return undecided(waiting.describe_sides() + ": which communicators these are is not in the frames");
  Deadlock found = waiting.accuse(a, reason_a, kEqualSides);
  const Deadlock other = waiting.accuse(b, reason_b, kEqualSides);
  found.suspects.insert(found.suspects.end(), other.suspects.begin(), other.suspects.end());
  found.explanation = waiting.describe_sides();
  found.sides_are_equal = true;
  return found;
}

// The sides, divided into their ranks of each stage. std::nullopt if stages do not count: all ranks wait in one group,
// or a rank has no stage.
std::optional<std::map<int, std::vector<Side>>> divide_by_stage(const WaitingJob& waiting,
                                                                const std::vector<int>& stage_of) {
  std::map<int, std::vector<Side>> by_stage;
  for (const Side& side : waiting.sides) {
    const RankState& first = waiting.states[side.front()];
    const auto world = waiting.job.ranks[first.rank].world_size;
    if (first.group &&
        (first.group->ranks.empty() ? first.group->name == kDefaultGroup
                                    : !world || first.group->ranks.size() == static_cast<std::size_t>(*world)))
      return std::nullopt;
    std::map<int, Side> parts;
    for (const std::size_t i : side) {
      const int stage = stage_of[waiting.states[i].rank];
      if (stage == kNoStage) return std::nullopt;
      parts[stage].push_back(i);
    }
    for (auto& [stage, part] : parts) by_stage[stage].push_back(std::move(part));
  }
  return by_stage;
}

}  // namespace

Deadlock between_sides(const WaitingJob& waiting, Reason reason, double confidence) {
  const std::vector<Side>& sides = waiting.sides;
  const auto largest =
      std::max_element(sides.begin(), sides.end(), [](const Side& a, const Side& b) { return a.size() < b.size(); });
  // A side with more than half of the ranks is the only one of its size.
  if (largest->size() * 2 > waiting.all_members().size())
    return against_majority(waiting, *largest, reason, confidence);
  if (sides.size() > 2)
    if (std::vector<Side> merged = merge_same_calls(waiting.states, sides); !merged.empty())
      return between_sides(waiting.with_sides(std::move(merged)), reason, confidence);
  if (sides.size() != 2)
    return undecided(fmt::format("they wait in {} different places, none with a majority", sides.size()));
  return between_equal_sides(waiting, sides[0], sides[1], reason);
}

std::optional<Deadlock> within_stages(const WaitingJob& waiting) {
  const std::vector<int> stage_of = pipeline_stages(waiting.job);
  if (stage_of.empty()) return std::nullopt;
  auto by_stage = divide_by_stage(waiting, stage_of);
  if (!by_stage) return std::nullopt;
  const std::string source = coordinates_source(waiting.job);
  std::optional<Deadlock> decided, equal;
  for (auto& [stage, sides] : *by_stage) {
    if (sides.size() == 1) continue;
    Deadlock found = between_sides(waiting.with_sides(std::move(sides)), Reason::kCollectiveMismatch, kByPlace);
    if (found.suspects.empty()) continue;
    for (Blame& blame : found.suspects)
      if (waiting.is_p2p(blame.state)) blame.reason = Reason::kUnmatchedP2p;
    found.explanation += found.sides_are_equal ? fmt::format(", all of pipeline stage {}", stage)
                                               : fmt::format(", as the others of pipeline stage {} do", stage);
    std::optional<Deadlock>& into = found.sides_are_equal ? equal : decided;
    if (!into) {
      into = std::move(found);
      continue;
    }
    into->suspects.insert(into->suspects.end(), found.suspects.begin(), found.suspects.end());
    into->explanation += ", " + found.explanation;
  }
  const std::string reference = fmt::format("pipeline stages: {}", source);
  if (decided) return with_reference(std::move(*decided), reference);
  if (equal) return with_reference(std::move(*equal), reference);
  return with_reference(
      undecided(fmt::format(
          "no rank differs from the others of its pipeline stage, and stages differ by design (coordinates: {})",
          source)),
      reference);
}

}  // namespace rankstacks::analyzers
