#include "analyzers/unmatched_messages.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "analyzers/between_sides.h"
#include "analyzers/divergence.h"
#include "analyzers/place.h"
#include "analyzers/shared_rounds.h"
#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

constexpr double kNobodyConnects = 0.60;

// Ranks in a send or receive whose peer waits for something else.
struct Unmatched {
  std::vector<std::size_t> direct;     // the peer is in no send or receive
  std::vector<std::size_t> in_circle;  // the peer is in one, of another message, and its wait leads back
  std::vector<std::size_t> guessed;    // who the peer is, is not known for certain
  std::size_t ranks = 0;               // in a send or receive, matched or not
};

Unmatched find_unmatched(const WaitingJob& waiting) {
  Unmatched found;
  for (std::size_t o = 0; o < waiting.operations.size(); ++o) {
    const PendingOperation& c = waiting.operations[o];
    if (!waiting.is_p2p(c.members.front())) continue;
    found.ranks += c.members.size();
    if (c.operations.empty()) continue;
    const bool peer_is_elsewhere = std::any_of(c.operations.begin(), c.operations.end(), [&](std::size_t other) {
      return !waiting.is_p2p(waiting.operations[other].members.front());
    });
    std::vector<std::size_t>& into = !c.certain ? found.guessed : peer_is_elsewhere ? found.direct : found.in_circle;
    if (&into == &found.in_circle && !waiting.facts.waits.in_cycle(o)) continue;
    into.insert(into.end(), c.members.begin(), c.members.end());
  }
  return found;
}

bool all_others(const WaitingJob& waiting, std::size_t one, const std::function<bool(std::size_t)>& is_so) {
  return std::all_of(waiting.operations.begin(), waiting.operations.end(), [&](const PendingOperation& operation) {
    return std::all_of(operation.members.begin(), operation.members.end(),
                       [&](std::size_t i) { return i == one || is_so(i); });
  });
}

// It is in a send or receive, and its GPU was asked and runs nothing, while the kernels of all others that send or
// receive wait on their GPUs: it has come no further than to set its message up.
bool has_not_launched_its_message(const WaitingJob& waiting, std::size_t i) {
  if (!waiting.is_p2p(i) || waiting.states[i].gpu.activity != GpuActivity::kIdle) return false;
  bool some_have = false;
  for (const Side& side : waiting.sides)
    for (const std::size_t j : side) {
      if (!waiting.is_p2p(j) || waiting.states[j].gpu.activity == GpuActivity::kIdle) continue;
      if (!waiting.states[j].gpu.only_messages()) return false;
      some_have = true;
    }
  return some_have;
}

// A connection takes both ends. Ranks that set one up for a message, while nobody else does, have a peer that does
// not come: it would be among those that connect. Half of the ranks may connect with each other, as far as is known,
// unless there is one alone, and the messages of all others run on their GPUs.
std::vector<std::size_t> nobody_connects_with(const WaitingJob& waiting) {
  std::vector<std::size_t> connecting;
  for (const PendingOperation& operation : waiting.operations)
    std::copy_if(
        operation.members.begin(), operation.members.end(), std::back_inserter(connecting),
        [&](std::size_t i) { return waiting.states[i].doing.connects || has_not_launched_its_message(waiting, i); });
  const auto runs_a_message = [&](std::size_t i) { return waiting.is_p2p(i) && waiting.states[i].named_by_gpu; };
  const bool one_alone = connecting.size() == 1 && all_others(waiting, connecting.front(), runs_a_message);
  if (connecting.size() * 2 >= waiting.ranks && !one_alone) connecting.clear();
  return connecting;
}

// Most ranks send and receive at one place of the program, as all ranks of an exchange do (all-to-all, a ring), and
// the others wait in collectives: these have left the path of the majority.
std::optional<Deadlock> majority_at_one_place(const WaitingJob& waiting) {
  const auto largest = std::max_element(waiting.sides.begin(), waiting.sides.end(),
                                        [](const Side& a, const Side& b) { return a.size() < b.size(); });
  const bool others_in_collectives = std::all_of(waiting.sides.begin(), waiting.sides.end(), [&](const Side& side) {
    return &side == &*largest || waiting.states[side.front()].doing.activity == known::Activity::kCollective;
  });
  if (waiting.sides.size() < 2 || largest->size() * 2 <= waiting.ranks || !waiting.is_p2p(largest->front()) ||
      !others_in_collectives)
    return std::nullopt;
  return with_reference(between_sides(waiting, Reason::kCollectiveMismatch, kPartnersGuessed), kInferredFromStacks);
}

// The receiver's distance to the rank that it receives from, around all ranks, in a message that this rank would be a
// part of; std::nullopt if its peer is not known.
std::optional<int> distance_of(const WaitingJob& waiting, const RankState& s) {
  const RankSnapshot& rank = waiting.job.ranks[s.rank];
  const Operation& operation = s.doing.operation;
  if (!s.peer || !rank.rank || !rank.world_size || *rank.world_size <= 0 || operation.sends == operation.receives)
    return std::nullopt;
  const int distance = operation.receives ? *s.peer - *rank.rank : *rank.rank - *s.peer;
  return (distance % *rank.world_size + *rank.world_size) % *rank.world_size;
}

// Ranks pass messages around by one rule: each receives from the neighbour on the same side. Of ranks in a circle
// that wait at one line, some may have turned to the other side: those whose distance differs from that of most
// messages which anybody waits for. Empty if none can be distinguished from the others.
std::vector<std::size_t> those_that_turn_to_another_side(const WaitingJob& waiting,
                                                         const std::vector<std::size_t>& circle) {
  if (circle.empty()) return {};
  const std::string place = place_key(waiting.job, waiting.states[circle.front()]);
  for (const std::size_t i : circle)
    if (place_key(waiting.job, waiting.states[i]) != place) return {};
  std::map<int, std::size_t> votes;
  std::size_t all = 0;
  for (const RankState& s : waiting.states) {
    if (s.unrelated || s.doing.activity != known::Activity::kPointToPoint) continue;
    const auto distance = distance_of(waiting, s);
    if (!distance) continue;
    ++votes[*distance];
    ++all;
  }
  const auto most =
      std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == votes.end() || most->second * 2 <= all) return {};
  std::vector<std::size_t> turned;
  std::copy_if(circle.begin(), circle.end(), std::back_inserter(turned),
               [&](std::size_t i) { return distance_of(waiting, waiting.states[i]) != most->first; });
  return turned.size() < circle.size() ? turned : std::vector<std::size_t>();
}

// The ranks of a circle wait at several lines, as those do that receive from one neighbour and send to the other. One
// of them has a peer that is no neighbour, as those of all others are.
std::vector<std::size_t> that_with_another_distance(const WaitingJob& waiting, const std::vector<std::size_t>& circle) {
  constexpr std::size_t kSeveral = 3;
  const auto of = [&](const RankState& s) -> std::optional<int> {
    const auto distance = distance_of(waiting, s);
    const int world = waiting.job.ranks[s.rank].world_size.value_or(0);
    return distance ? std::optional(std::min(*distance, world - *distance)) : std::nullopt;
  };
  std::map<int, std::size_t> votes;
  for (const RankState& s : waiting.states) {
    if (s.unrelated || s.doing.activity != known::Activity::kPointToPoint) continue;
    const auto distance = of(s);
    if (!distance) return {};
    ++votes[*distance];
  }
  std::vector<std::size_t> apart;
  if (votes.size() != 2 || std::min(votes.begin()->second, votes.rbegin()->second) != 1 ||
      std::max(votes.begin()->second, votes.rbegin()->second) < kSeveral)
    return {};
  const int other = votes.begin()->second == 1 ? votes.begin()->first : votes.rbegin()->first;
  std::copy_if(circle.begin(), circle.end(), std::back_inserter(apart),
               [&](std::size_t i) { return of(waiting.states[i]) == other; });
  return apart;
}

// Of ranks in a circle, those whose peer waits in a later step of the same loop: it has done all that it does in the
// step of the rank that waits for it. (Its own wait for that rank is a matter of course.) Empty if none can be
// distinguished from the others.
std::vector<std::size_t> those_whose_peer_is_further_on(const WaitingJob& waiting,
                                                        const std::vector<std::size_t>& circle) {
  std::vector<std::size_t> behind;
  const std::vector<std::int64_t> rounds =
      circle.empty() ? std::vector<std::int64_t>() : shared_rounds(waiting.job, waiting.states);
  for (const std::size_t i : circle)
    for (const std::size_t j : circle) {
      if (!waiting.states[i].peer || waiting.states[i].peer != waiting.job.ranks[waiting.states[j].rank].rank) continue;
      const Divergence divergence = divergence_of(waiting.states[i], waiting.states[j]);
      const bool by_rounds = divergence.counter.empty() && !rounds.empty() && rounds[i] < rounds[j] &&
                             place_key(waiting.job, waiting.states[i]) == place_key(waiting.job, waiting.states[j]);
      if (divergence.a_is_behind() || by_rounds) behind.push_back(i);
    }
  return behind.size() < circle.size() ? behind : std::vector<std::size_t>();
}

// One sends to the other, which receives from it, but their messages differ in tag or group. Neither is a step
// behind: what it waits for would have come with an earlier message.
std::vector<std::size_t> those_that_name_another_message(const WaitingJob& waiting,
                                                         const std::vector<std::size_t>& circle) {
  std::map<int, std::size_t> by_number;
  for (const std::size_t i : circle)
    if (const auto number = waiting.job.ranks[waiting.states[i].rank].rank) by_number.emplace(*number, i);
  std::vector<std::size_t> apart;
  for (const auto& [number, i] : by_number) {
    const RankState& s = waiting.states[i];
    const auto peer = s.peer ? by_number.find(*s.peer) : by_number.end();
    if (peer == by_number.end() || waiting.states[peer->second].peer != number) continue;
    const Operation &own = s.doing.operation, &its = waiting.states[peer->second].doing.operation;
    if ((own.sends && its.receives) || (own.receives && its.sends)) apart.push_back(i);
  }
  return apart;
}

// The ranks that wait in a line behind one that is in a message, itself included: each for a message of the next, at
// one place of the program, and all for the rank at the same distance, as stages do.
std::vector<std::size_t> line_behind(const WaitingJob& waiting, std::size_t first) {
  std::map<int, std::size_t> by_number;
  for (const std::size_t i : waiting.all_members())
    if (const auto number = waiting.job.ranks[waiting.states[i].rank].rank) by_number.emplace(*number, i);
  std::vector<std::size_t> line = {first};
  const auto number = waiting.job.ranks[waiting.states[first].rank].rank;
  const auto world = waiting.job.ranks[waiting.states[first].rank].world_size;
  if (!number || !world || *world <= 0 || !waiting.states[first].peer) return line;
  const std::string place = place_key(waiting.job, waiting.states[first]);
  for (int at = *number, distance = at - *waiting.states[first].peer;;) {
    const auto next = by_number.find(((at + distance) % *world + *world) % *world);
    if (next == by_number.end() || next->second == first || !waiting.is_p2p(next->second) ||
        waiting.states[next->second].peer != at || place_key(waiting.job, waiting.states[next->second]) != place)
      return line;
    line.push_back(next->second);
    at = next->first;
  }
}

// Several ranks wait for one and the same rank, which is in a collective at a later line of the program: they make one
// call, and it has left its own out. They may all wait for it, or in a line.
std::optional<Deadlock> peer_of_several(const WaitingJob& waiting, const std::vector<std::size_t>& direct) {
  const auto peer = direct.empty() ? std::nullopt : waiting.states[direct.front()].peer;
  if (!peer || std::any_of(direct.begin(), direct.end(), [&](std::size_t i) { return waiting.states[i].peer != peer; }))
    return std::nullopt;
  const std::vector<std::size_t> waits = direct.size() == 1 ? line_behind(waiting, direct.front()) : direct;
  if (waits.size() < 2) return std::nullopt;
  for (const Side& side : waiting.sides)
    for (const std::size_t i : side)
      if (waiting.job.ranks[waiting.states[i].rank].rank == peer && waiting.states[i].in_collective() &&
          std::all_of(waits.begin(), waits.end(),
                      [&](std::size_t one) { return has_passed(waiting.job, waiting.states[i], waiting.states[one]); }))
        return between_sides(waiting.with_sides({waits, {i}}), Reason::kCollectiveMismatch, kByPlace);
  return std::nullopt;
}

// A message that is one of several in both directions: MPI_Sendrecv, or the wait for one that was begun before,
// MPI_Wait and Work::wait. Two ranks that wait in such a call are not in each other's way, as two that send or receive
// are.
bool is_part_of_exchange(const WaitingJob& waiting, std::size_t i) {
  const RankState& s = waiting.states[i];
  if (!waiting.is_p2p(i) || s.doing.operation.sends == s.doing.operation.receives) return waiting.is_p2p(i);
  const ThreadSnapshot& thread = waiting.job.ranks[s.rank].threads[s.doing.thread];
  const Frame& frame = waiting.job.frames[thread.frames[s.doing.frame]];
  return frame.kind == FrameKind::kNative && contains(frame.function.value_or(""), "Work::wait");
}

bool wait_in_one_users_function(const WaitingJob& waiting, const std::vector<std::size_t>& ranks) {
  const RankState& first = waiting.states[ranks.front()];
  return std::all_of(ranks.begin(), ranks.end(), [&](std::size_t i) {
    const RankState& s = waiting.states[i];
    if (s.path.empty() || first.path.empty()) return place_key(waiting.job, s) == place_key(waiting.job, first);
    return s.path.back().function == first.path.back().function && s.path.back().file == first.path.back().file;
  });
}

// Those of `others` around which the ranks that wait are placed evenly, by their numbers in a ring of all ranks, as the
// neighbours of a rank are in a line, a ring or a grid: of these the nearest.
std::vector<std::size_t> in_the_middle_of(const WaitingJob& waiting, const std::vector<std::size_t>& waits,
                                          const std::vector<std::size_t>& others) {
  const auto number_of = [&](std::size_t i) { return waiting.job.ranks[waiting.states[i].rank].rank; };
  const auto world = waiting.job.ranks[waiting.states[waits.front()].rank].world_size;
  if (!world || *world <= 0) return {};
  std::vector<std::size_t> found;
  int nearest = *world;
  for (const std::size_t i : others) {
    if (!number_of(i)) return {};
    std::set<int> distances;
    int furthest = 0;
    for (const std::size_t j : waits) {
      if (!number_of(j)) return {};
      const int distance = ((*number_of(j) - *number_of(i)) % *world + *world) % *world;
      distances.insert(distance);
      furthest = std::max(furthest, std::min(distance, *world - distance));
    }
    if (furthest > nearest || std::any_of(distances.begin(), distances.end(),
                                          [&](int distance) { return !distances.contains(*world - distance); }))
      continue;
    if (furthest < nearest) found.clear();
    nearest = furthest;
    found.push_back(i);
  }
  return found;
}

// Some ranks, in one function, wait for messages of an exchange with ranks that are not known, and all others are in
// collectives. The exchange is one that all ranks make, and one of the others has left it out: the one in the middle,
// if those that wait are further back in the program. They do what they should, so they are never accused.
std::optional<Deadlock> who_left_out_an_exchange(const WaitingJob& waiting, const Unmatched& messages) {
  const std::vector<std::size_t>& waits = messages.guessed;
  if (waits.size() < 2 || waits.size() != messages.ranks || waits.size() * 2 > waiting.ranks ||
      !std::all_of(waits.begin(), waits.end(), [&](std::size_t i) { return is_part_of_exchange(waiting, i); }) ||
      !wait_in_one_users_function(waiting, waits))
    return std::nullopt;
  std::vector<std::size_t> others;
  for (const std::size_t i : waiting.all_members()) {
    if (waiting.is_p2p(i)) continue;
    if (waiting.states[i].doing.activity != known::Activity::kCollective) return std::nullopt;
    others.push_back(i);
  }
  std::vector<std::size_t> passed;
  std::copy_if(others.begin(), others.end(), std::back_inserter(passed), [&](std::size_t i) {
    return std::all_of(waits.begin(), waits.end(),
                       [&](std::size_t j) { return has_passed(waiting.job, waiting.states[i], waiting.states[j]); });
  });
  const std::vector<std::size_t> middle = in_the_middle_of(waiting, waits, passed);
  if (middle.size() == 1)
    return with_reference(
        between_sides(waiting.with_sides({waits, middle}), Reason::kCollectiveMismatch, kPartnersGuessed),
        kInferredFromStacks);
  Deadlock found = undecided(waiting.describe_sides() +
                             ": whether one of these has left that exchange out, and which, is not in the frames");
  found.candidates = middle;
  found.would_decide = "whether it has made the exchange in which the others wait: print its messages' peers";
  return found;
}

// Who waits for whom is known.
std::optional<Deadlock> accuse_by_peers(const WaitingJob& waiting, const Unmatched& messages) {
  if (auto found = peer_of_several(waiting, messages.direct)) return found;
  if (!messages.direct.empty()) return waiting.accuse(messages.direct, Reason::kUnmatchedP2p, kPartnersKnown);
  if (const auto alone = nobody_connects_with(waiting); !alone.empty())
    return waiting.accuse(alone, Reason::kUnmatchedP2p, kNobodyConnects);
  if (const auto apart = those_that_name_another_message(waiting, messages.in_circle); !apart.empty())
    return waiting.accuse(apart, Reason::kUnmatchedP2p, kPartnersKnown);
  if (const auto turned = those_that_turn_to_another_side(waiting, messages.in_circle); !turned.empty())
    return waiting.accuse(turned, Reason::kUnmatchedP2p, kPartnersKnown);
  if (const auto behind = those_whose_peer_is_further_on(waiting, messages.in_circle); !behind.empty())
    return waiting.accuse(behind, Reason::kUnmatchedP2p, kPartnersKnown);
  if (const auto apart = that_with_another_distance(waiting, messages.in_circle); !apart.empty())
    return waiting.accuse(apart, Reason::kUnmatchedP2p, kByPlace);
  if (!messages.in_circle.empty()) return waiting.accuse(messages.in_circle, Reason::kUnmatchedP2p, kPartnersKnown);
  return std::nullopt;
}

}  // namespace

std::optional<Deadlock> circle_of_peers(const WaitingJob& waiting) {
  std::vector<Blame> circle;
  std::vector<std::size_t> members;
  for (std::size_t o = 0; o < waiting.operations.size(); ++o) {
    // A rank whose peer is known is an operation of its own.
    const std::size_t i = waiting.operations[o].members.front();
    if (!waiting.states[i].peer_process || !waiting.facts.waits.in_cycle(o)) continue;
    members.push_back(i);
    circle.push_back({i,
                      waiting.states[i].doing.operation.kind == known::OperationKind::kProcessLock
                          ? Reason::kFileIo
                          : Reason::kUnmatchedP2p,
                      kPartnersKnown});
  }
  if (circle.empty()) return std::nullopt;
  Deadlock found = waiting.accuse(members, Reason::kFileIo, kPartnersKnown);
  std::sort(circle.begin(), circle.end(), [](const Blame& a, const Blame& b) { return a.state < b.state; });
  found.suspects = std::move(circle);
  return found;
}

std::optional<Deadlock> unmatched_messages(const WaitingJob& waiting) {
  const Unmatched messages = find_unmatched(waiting);
  if (auto found = accuse_by_peers(waiting, messages)) return found;
  if (messages.ranks == 0) return std::nullopt;
  if (auto found = majority_at_one_place(waiting)) return found;
  if (auto found = within_stages(waiting)) return found;  // a stage that receives from another is normal in a pipeline
  if (auto found = who_left_out_an_exchange(waiting, messages)) return found;
  // The peers are not known, but if all ranks receive, none sends.
  const auto all = [&](bool Operation::*does, bool Operation::*does_not) {
    return std::all_of(messages.guessed.begin(), messages.guessed.end(), [&](std::size_t i) {
      return waiting.states[i].doing.operation.*does && !(waiting.states[i].doing.operation.*does_not);
    });
  };
  const bool one_way = all(&Operation::receives, &Operation::sends) || all(&Operation::sends, &Operation::receives);
  if (!messages.guessed.empty() &&
      (messages.ranks * 2 < waiting.ranks || (messages.ranks * 2 == waiting.ranks && one_way))) {
    Deadlock found = waiting.accuse(messages.guessed, Reason::kUnmatchedP2p, kPartnersGuessed);
    // The others may compute, before they send what is received here.
    found.may_be_a_step = waiting.waits_for_gpu();
    return with_reference(std::move(found), kInferredFromStacks);
  }
  return undecided("some of them in sends or receives: who waits for whom is not in these frames");
}

}  // namespace rankstacks::analyzers
