#include "analyzers/deadlock.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "analyzers/between_sides.h"
#include "analyzers/collective_roots.h"
#include "analyzers/communicator_errors.h"
#include "analyzers/divergence.h"
#include "analyzers/flight_records.h"
#include "analyzers/gloo_work.h"
#include "analyzers/gpu_sides.h"
#include "analyzers/handled.h"
#include "analyzers/launches.h"
#include "analyzers/network_threads.h"
#include "analyzers/set_up_stores.h"
#include "analyzers/unmatched_messages.h"
#include "analyzers/waiting_job.h"
#include "analyzers/watchdog_text.h"
#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

// Those that wait for their GPUs may be in a long step of their own.
Deadlock may_be_a_step(Deadlock found) {
  found.may_be_a_step = true;
  return found;
}

// They wait at one place, for collectives that were called before. Each rank's gloo runs some: of those that all wait
// alike in a hang, none has finished. The dumps of other tools are of one moment after the other: how many run then
// says nothing, nor does it if the ranks have some of a kind in common.
std::optional<Deadlock> another_collective_in_gloo(const WaitingJob& waiting) {
  std::map<std::vector<std::string>, Side> by_work;
  for (const std::size_t i : waiting.sides.front()) {
    const std::size_t rank = waiting.states[i].rank;
    auto work = collectives_in_gloo(waiting.job.frames, waiting.job.ranks[rank], waiting.facts.roles[rank]);
    if (work.empty()) return std::nullopt;
    by_work[std::move(work)].push_back(i);
  }
  if (by_work.size() != 2) return std::nullopt;
  const std::vector<std::string>& first = by_work.begin()->first;
  const std::vector<std::string>& last = by_work.rbegin()->first;
  const bool in_dumps = waiting.job.ranks[waiting.states[waiting.sides.front().front()].rank].source == Source::kDump;
  if (in_dumps && std::any_of(first.begin(), first.end(), [&](const std::string& kind) {
        return std::find(last.begin(), last.end(), kind) != last.end();
      }))
    return std::nullopt;
  const auto side = [](const auto& one) { return DifferentOperation{one.second, joined(one.first, " and ")}; };
  return accuse_smaller_side(waiting.job, waiting.states, "what gloo runs", side(*by_work.begin()),
                             side(*by_work.rbegin()));
}

// Some ranks call from atexit or the interpreter's end, or while they handle an exception (in a `finally` or
// `except`). What they wait for there is not part of what the others are doing.
std::optional<Deadlock> by_exception(const WaitingJob& waiting) {
  std::vector<std::size_t> ending;
  std::size_t all = 0;
  for (const Side& side : waiting.sides)
    for (const std::size_t i : side) {
      ++all;
      if ((waiting.states[i].doing.in_teardown ||
           handles_failure(waiting.job.ranks[waiting.states[i].rank].threads[waiting.states[i].doing.thread])) &&
          waiting.facts.waits.is_needed(waiting.states[i].rank))
        ending.push_back(i);
    }
  if (ending.empty() || ending.size() * 2 > all) return std::nullopt;
  return waiting.accuse(ending, Reason::kException, kByPlace);
}

// Whether some operations wait for each other in a circle, apart from the operation `without`. `needs`: of each
// operation those that it waits for.
bool has_circle(const std::vector<std::vector<std::size_t>>& needs, std::size_t without) {
  // Those that no other waits for are left out, one after the other: what is left is a circle, or is needed by one.
  std::vector<std::size_t> needed(needs.size(), 0), free;
  for (std::size_t o = 0; o < needs.size(); ++o)
    if (o != without)
      for (const std::size_t other : needs[o]) needed[other] += other != without;
  for (std::size_t o = 0; o < needs.size(); ++o)
    if (o != without && needed[o] == 0) free.push_back(o);
  std::size_t left = needs.size() - 1;
  while (!free.empty()) {
    const std::size_t o = free.back();
    free.pop_back();
    --left;
    for (const std::size_t other : needs[o])
      if (other != without && --needed[other] == 0) free.push_back(other);
  }
  return left > 0;
}

// The state of the only rank without which nobody would wait in a circle: all circles go through it, and no other rank
// waits where it does. Nobody, where the members of some group are not known.
std::optional<std::size_t> lone_rank_of_all_circles(const WaitingJob& waiting) {
  constexpr std::size_t kMaxOperations = 64;
  const std::vector<PendingOperation>& operations = waiting.operations;
  if (operations.size() > kMaxOperations) return std::nullopt;
  std::vector<std::vector<std::size_t>> needs(operations.size());
  for (std::size_t o = 0; o < operations.size(); ++o) {
    const auto& known_group = waiting.states[operations[o].members.front()].group;
    if (!known_group || known_group->ranks.empty()) return std::nullopt;
    const std::set<int> group(known_group->ranks.begin(), known_group->ranks.end());
    for (const std::size_t other : operations[o].operations)
      if (std::any_of(operations[other].members.begin(), operations[other].members.end(), [&](std::size_t i) {
            const auto number = waiting.job.ranks[waiting.states[i].rank].rank;
            return number && group.contains(*number);
          }))
        needs[o].push_back(other);
  }
  std::optional<std::size_t> found;
  for (std::size_t o = 0; o < operations.size(); ++o) {
    if (operations[o].members.size() != 1 || has_circle(needs, o)) continue;
    if (found) return std::nullopt;
    found = operations[o].members.front();
  }
  return found;
}

// Groups whose members wait for each other in a circle.
std::optional<Deadlock> circle_of_groups(const WaitingJob& waiting) {
  bool any_cycle = false;
  for (std::size_t o = 0; o < waiting.operations.size(); ++o) any_cycle |= waiting.facts.waits.in_cycle(o);
  std::map<std::string, Side> by_group;
  bool all_ranks = false;
  for (std::size_t o = 0; o < waiting.operations.size(); ++o) {
    const PendingOperation& c = waiting.operations[o];
    if (any_cycle && !waiting.facts.waits.in_cycle(o)) continue;
    const RankState& s = waiting.states[c.members.front()];
    if (!s.group || s.group->ranks.empty()) return std::nullopt;
    Side& side = by_group[s.group->name];
    side.insert(side.end(), c.members.begin(), c.members.end());
    const auto world = waiting.job.ranks[s.rank].world_size;
    all_ranks |=
        s.group->name == kDefaultGroup && (!world || s.group->ranks.size() == static_cast<std::size_t>(*world));
  }
  if (!any_cycle || by_group.size() < 2) return std::nullopt;
  if (const auto lone = lone_rank_of_all_circles(waiting))
    return waiting.accuse({*lone}, all_ranks ? Reason::kCollectiveMismatch : Reason::kProcessGroupOrder,
                          kPartnersKnown);
  std::vector<Side> sides;
  for (auto& [name, side] : by_group) {
    std::sort(side.begin(), side.end());
    sides.push_back(std::move(side));
  }
  const WaitingJob groups = waiting.with_sides(std::move(sides));
  if (all_ranks) {
    if (groups.sides.size() == 2)
      if (const Side few = smaller_side_of_shared(groups.job, groups.states, groups.sides[0], groups.sides[1]);
          !few.empty())
        return groups.accuse(few, Reason::kCollectiveMismatch, kByPlace);
    return between_sides(groups, Reason::kCollectiveMismatch, kPartnersKnown);
  }
  Deadlock found = between_sides(groups, Reason::kProcessGroupOrder, kPartnersKnown);
  if (!found.suspects.empty()) return found;
  std::vector<std::size_t> all;  // each waits for the next, so none is the odd one
  for (const Side& side : groups.sides) all.insert(all.end(), side.begin(), side.end());
  found = groups.accuse(all, Reason::kProcessGroupOrder, kEqualSides);
  found.explanation = groups.describe_sides();
  found.sides_are_equal = true;
  return found;
}

// Who is at an earlier step of the same loop has called something else for that reason.
Deadlock behind_by_counters(const WaitingJob& waiting, Deadlock found) {
  if (found.sides_are_equal) return found;
  const auto is_accused = [&](std::size_t i) {
    return std::any_of(found.suspects.begin(), found.suspects.end(), [&](const Blame& b) { return b.state == i; });
  };
  const Side all = waiting.all_members();
  const auto other = std::find_if_not(all.begin(), all.end(), is_accused);
  if (other == all.end()) return found;
  for (Blame& blame : found.suspects) {
    if (blame.reason != Reason::kCollectiveMismatch) continue;
    const Divergence apart = divergence_of(waiting.states[blame.state], waiting.states[*other]);
    if (apart.a_is_behind() && !apart.a_keeps_step()) blame.reason = Reason::kBehind;
  }
  return found;
}

// What other sources than the stacks say.
std::optional<Deadlock> explain_by_records(const WaitingJob& waiting) {
  if (auto found = explain_by_flight_records(waiting.job, waiting.states, waiting.facts.roles))
    return with_reference(behind_by_counters(waiting, std::move(*found)), kFromFlightRecords);
  if (auto found = explain_by_watchdogs(waiting.job, waiting.states))
    return with_reference(std::move(*found), kFromWatchdogs);
  if (!waiting.waits_for_gpu() && !waiting.known_from_gpus()) return std::nullopt;
  auto found = explain_by_launches(waiting.job, waiting.states);
  if (!found || accuses_a_collective_kernel(waiting, *found)) return std::nullopt;
  found->reference = kFromLaunches;
  return found;
}

// Some wait for the answer to a call, which may be any process's, while all others wait for them in collectives: these
// answer nobody.
std::optional<Deadlock> unanswered_call(const WaitingJob& waiting) {
  Side callers, others;
  for (const std::size_t i : waiting.all_members()) {
    const RankState& s = waiting.states[i];
    const bool calls = s.doing.operation.kind == known::OperationKind::kRemoteCall && !s.peer_process;
    (calls ? callers : others).push_back(i);
  }
  if (callers.empty() || callers.size() > others.size()) return std::nullopt;
  for (const PendingOperation& operation : waiting.operations) {
    const RankState& s = waiting.states[operation.members.front()];
    if (s.doing.operation.kind == known::OperationKind::kRemoteCall) continue;
    if (s.doing.activity != known::Activity::kCollective || !operation.certain) return std::nullopt;
  }
  if (std::any_of(callers.begin(), callers.end(),
                  [&](std::size_t i) { return !waiting.facts.waits.is_needed(waiting.states[i].rank); }))
    return std::nullopt;
  return waiting.accuse(callers, Reason::kNetworkIo, kByPlace);
}

// What certain ranks do, and who needs whom.
std::optional<Deadlock> explain_by_operations(const WaitingJob& waiting) {
  if (auto found = several_roots_in_one_step(waiting)) return with_reference(std::move(*found), kFromGroups);
  if (auto found = explain_by_skipped_launch(waiting.job, waiting.states))
    return with_reference(std::move(*found), kFromLaunches);
  if (auto found = circle_of_peers(waiting)) return with_reference(std::move(*found), kAllRanks);
  if (auto found = unmatched_messages(waiting)) return with_reference(std::move(*found), kFromGroups);
  if (auto found = circle_of_groups(waiting)) return with_reference(std::move(*found), kFromGroups);
  if (auto found = unanswered_call(waiting)) return with_reference(std::move(*found), kFromGroups);
  if (waiting.any_side(known::Activity::kPeerWait))
    return undecided(
        "some of them for a lock or a queue between processes: who holds or fills it is not in these frames");
  return std::nullopt;
}

// At least one side waits for its GPUs.
std::optional<Deadlock> explain_by_gpus(const WaitingJob& waiting) {
  if ((waiting.names_some_operation() || waiting.wait_in_one_function()) &&
      none_launched_too_little(waiting.job, waiting.states, waiting.all_members()))
    return with_reference(may_be_a_step(between_sides(waiting, Reason::kCollectiveMismatch, kByCounts)), kFromLaunches);
  if (auto found = absent_from_a_group(waiting)) return found;
  if (auto found = before_their_set_up(waiting)) return with_reference(std::move(*found), kAllRanks);
  return undecided(waiting.known_from_gpus()
                       ? "the kernels on their GPUs are of one collective, but their names do not "
                         "show whether it is the same call"
                       : "the kernels that run on the GPUs would show the difference");
}

std::optional<Deadlock> explain_by_sides(WaitingJob waiting) {
  const Facts& facts = waiting.facts;
  if (auto found = by_exception(waiting)) return with_reference(std::move(*found), kAllRanks);
  if (auto found = explain_by_records(waiting)) return found;
  // Wherever their CPUs are, none of them has called another collective.
  if (const auto work = common_work(waiting.states); work && work->is_collective()) return std::nullopt;
  if (waiting.sides.size() == 1) {
    if (auto found = another_root(waiting)) return with_reference(std::move(*found), kFromGroups);
    if (auto found = another_collective_in_gloo(waiting)) return with_reference(std::move(*found), kAllRanks);
    if (auto found = without_the_others_store(waiting)) return with_reference(std::move(*found), kAllRanks);
    std::vector<Side> steps = split_by_counter(facts.job, facts.states, waiting.sides.front());
    if (steps.empty()) return std::nullopt;
    waiting.sides = std::move(steps);
  }
  if (auto found = explain_by_operations(waiting)) return found;
  if (auto found = own_gpu_work(waiting)) return with_reference(std::move(*found), kFromLaunches);
  if (waiting.waits_for_gpu()) return explain_by_gpus(waiting);
  if (auto found = within_stages(waiting)) return found;
  return with_reference(between_sides(waiting, Reason::kCollectiveMismatch, kByPlace),
                        all_certain(facts.operations) ? kFromGroups : kInferredFromStacks);
}

// What NCCL says of a communicator's calls decides where nothing else does: it does not tell whose call is the odd one.
std::optional<Deadlock> with_misfit(const WaitingJob& waiting, std::optional<Deadlock> found) {
  const auto misfit = find_misfit(waiting.job, waiting.states);
  if (!misfit) return found;
  if (!found || (found->suspects.empty() && found->candidates.empty()))
    return with_reference(explain_misfit(waiting, *misfit), kFromLaunches);
  // Such a communicator finishes nothing any more: its members are in no step that ends.
  if (!found->suspects.empty() && std::all_of(found->suspects.begin(), found->suspects.end(), [&](const Blame& blame) {
        return std::binary_search(misfit->members.begin(), misfit->members.end(), blame.state);
      }))
    found->may_be_a_step = false;
  return found;
}

// What NCCL's threads do comes last: an operation may need no network at some of its ranks.
std::optional<Deadlock> with_network_threads(const WaitingJob& waiting, std::optional<Deadlock> found) {
  if ((found && (!found->suspects.empty() || !found->candidates.empty())) || !waiting.waits_for_gpu()) return found;
  if (const auto work = common_work(waiting.states); work && work->is_collective()) return found;
  if (auto by_network = explain_by_network_threads(waiting))
    return with_reference(std::move(*by_network), kFromNetwork);
  return found;
}

}  // namespace

std::optional<Deadlock> explain_deadlock(const Facts& facts) {
  const WaitingJob waiting(facts);
  return with_network_threads(waiting, with_misfit(waiting, explain_by_sides(waiting)));
}

}  // namespace rankstacks::analyzers
