#include "analyzers/deadlock.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analyzers/coordinates.h"
#include "analyzers/divergence.h"
#include "analyzers/flight_records.h"
#include "analyzers/gloo_work.h"
#include "analyzers/gpu_waits.h"
#include "analyzers/handled.h"
#include "analyzers/launches.h"
#include "analyzers/names.h"
#include "analyzers/place.h"
#include "analyzers/shared_rounds.h"
#include "analyzers/sides.h"
#include "analyzers/watchdog_text.h"
#include "known/modules.h"

namespace rankstacks::analyzers {
namespace {

constexpr double kPartnersKnown = 0.80;  // groups or peers are known
constexpr double kByPlace = 0.65;
constexpr double kByCounts = 0.55;  // by place, and NCCL's counts agree
constexpr double kEqualSides = 0.40;
constexpr double kNobodyConnects = 0.60;
constexpr double kAbsentFromGroup = 0.55;
constexpr double kPartnersGuessed = 0.45;

// Its thread sleeps in a wait of the host's, and not in one for the GPU.
bool waits_on_host(const JobSnapshot& job, const RankState& s) {
  const ThreadSnapshot* thread = leading_thread(job, s);
  return thread != nullptr && thread->state != 'R' &&
         std::none_of(thread->frames.begin(), thread->frames.end(), [&](FrameId id) {
           return known::module_kind(base_name(job.frames[id].module)) == known::ModuleKind::kRuntime;
         });
}

class Explanation {
 public:
  explicit Explanation(const Facts& facts)
      : facts_(facts),
        job_(facts.job),
        states_(facts.states),
        operations_(facts.operations),
        sides_(sides_by_place(facts)) {
    for (std::size_t o = 0; o < operations_.size(); ++o) {
      any_cycle_ |= facts_.waits.in_cycle(o);
      ranks_ += operations_[o].members.size();
    }
  }

  std::optional<Deadlock> explain() {
    if (auto found = explain_by_flight_records(job_, states_))
      return with_reference(std::move(*found), kFromFlightRecords);
    if (auto found = explain_by_watchdogs(job_, states_)) return with_reference(std::move(*found), kFromWatchdogs);
    if (waits_for_gpu() || known_from_gpus())
      if (auto found = explain_by_launches(job_, states_); found && !accuses_a_collective_kernel(*found)) {
        found->reference = kFromLaunches;
        return found;
      }
    if (sides_.size() == 1) {
      if (auto found = another_root()) return with_reference(std::move(*found), kFromGroups);
      if (auto found = another_collective_in_gloo()) return with_reference(std::move(*found), kAllRanks);
      std::vector<Side> steps = split_by_counter(job_, states_, sides_.front());
      if (steps.empty()) return std::nullopt;
      sides_ = std::move(steps);
    }
    if (auto found = by_exception()) return with_reference(std::move(*found), kAllRanks);
    if (auto found = several_roots_in_one_step()) return with_reference(std::move(*found), kFromGroups);
    if (auto found = explain_by_skipped_launch(job_, states_)) return with_reference(std::move(*found), kFromLaunches);
    if (auto found = circle_of_peers()) return with_reference(std::move(*found), kAllRanks);
    if (auto found = unmatched())
      return with_reference(std::move(*found), guessed_ ? kInferredFromStacks : kFromGroups);
    if (auto found = circle_of_groups()) return with_reference(std::move(*found), kFromGroups);
    if (any_side(known::Activity::kPeerWait))
      return Deadlock{
          {},
          "some of them for a lock or a queue between processes: who holds or fills it is not in these frames",
          false,
          ""};
    if (auto found = own_gpu_work()) return with_reference(std::move(*found), kFromLaunches);
    if (waits_for_gpu() && (names_some_operation() || wait_in_one_function()) &&
        none_launched_too_little(job_, states_, all_members()))
      return with_reference(may_be_a_step(between_sides(Reason::kCollectiveMismatch, kByCounts)), kFromLaunches);
    if (auto found = absent_from_a_group()) return found;
    if (waits_for_gpu())
      return Deadlock{{},
                      known_from_gpus() ? "the kernels on their GPUs are of one collective, but their names do not "
                                          "show whether it is the same call"
                                        : "the kernels that run on the GPUs would show the difference",
                      false,
                      ""};
    if (auto found = within_stages()) return found;
    return with_reference(between_sides(Reason::kCollectiveMismatch, kByPlace),
                          all_certain(operations_) ? kFromGroups : kInferredFromStacks);
  }

 private:
  static Deadlock with_reference(Deadlock found, std::string reference) {
    if (found.reference.empty()) found.reference = std::move(reference);
    return found;
  }

  // Those that wait for their GPUs may be in a long step of their own.
  static Deadlock may_be_a_step(Deadlock found) {
    found.may_be_a_step = true;
    return found;
  }

  // The ranks of one stage are alike. Another stage is not comparable with them, unless all ranks wait in one group.
  std::optional<Deadlock> within_stages() {
    const std::vector<int> stage_of = pipeline_stages(job_);
    if (stage_of.empty()) return std::nullopt;
    std::map<int, std::vector<Side>> by_stage;
    for (const Side& side : sides_) {
      const RankState& first = states_[side.front()];
      const auto world = job_.ranks[first.rank].world_size;
      if (first.group &&
          (first.group->ranks.empty() ? first.group->name == kDefaultGroup
                                      : !world || first.group->ranks.size() == static_cast<std::size_t>(*world)))
        return std::nullopt;
      std::map<int, Side> parts;
      for (const std::size_t i : side) {
        const int stage = stage_of[states_[i].rank];
        if (stage == kNoStage) return std::nullopt;
        parts[stage].push_back(i);
      }
      for (auto& [stage, part] : parts) by_stage[stage].push_back(std::move(part));
    }
    const std::string source = coordinates_source(job_);
    const std::vector<Side> all_sides = sides_;
    std::optional<Deadlock> decided, equal;
    for (auto& [stage, sides] : by_stage) {
      if (sides.size() == 1) continue;
      sides_ = std::move(sides);
      Deadlock found = between_sides(Reason::kCollectiveMismatch, kByPlace);
      if (found.suspects.empty()) continue;
      for (Blame& blame : found.suspects)
        if (is_p2p(blame.state)) blame.reason = Reason::kUnmatchedP2p;
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
    sides_ = all_sides;
    const std::string reference = fmt::format("pipeline stages: {}", source);
    if (decided) return with_reference(std::move(*decided), reference);
    if (equal) return with_reference(std::move(*equal), reference);
    return with_reference(
        {{},
         fmt::format(
             "no rank differs from the others of its pipeline stage, and stages differ by design (coordinates: {})",
             source),
         false,
         ""},
        reference);
  }

  bool is_p2p(std::size_t i) const { return states_[i].doing.activity == known::Activity::kPointToPoint; }
  bool in_store(std::size_t i) const { return states_[i].doing.activity == known::Activity::kStoreWait; }
  bool any_side(known::Activity activity) const {
    return std::any_of(sides_.begin(), sides_.end(),
                       [&](const Side& side) { return states_[side.front()].doing.activity == activity; });
  }
  bool waits_for_gpu() const {
    return std::any_of(sides_.begin(), sides_.end(),
                       [&](const Side& side) { return states_[side.front()].gpu_wait_may_be_collective; });
  }

  // The stacks of at least one side show what it waits in.
  bool names_some_operation() const {
    return std::any_of(sides_.begin(), sides_.end(),
                       [&](const Side& side) { return !states_[side.front()].gpu_wait_may_be_collective; });
  }

  // All wait in the same function of the user's, at different lines of it.
  bool wait_in_one_function() const {
    const auto& first = states_[sides_.front().front()].path;
    return !first.empty() && std::all_of(sides_.begin(), sides_.end(), [&](const Side& side) {
      const auto& path = states_[side.front()].path;
      return !path.empty() && path.back().function == first.back().function && path.back().file == first.back().file;
    });
  }

  // Some wait for their GPUs, the others in a collective on the host, as gloo's are, and all have launched the same
  // collectives of NCCL: what those GPUs are busy with is no collective that the others have yet to launch.
  std::optional<Deadlock> own_gpu_work() const {
    Side busy;
    for (const Side& side : sides_)
      for (const std::size_t i : side) {
        const RankState& s = states_[i];
        if (s.gpu_wait_may_be_collective) busy.push_back(i);
        else if (s.doing.activity != known::Activity::kCollective || !waits_on_host(job_, s)) return std::nullopt;
      }
    if (busy.empty() || busy.size() * 2 > ranks_ || !all_launched_the_same(job_, states_, all_members()))
      return std::nullopt;
    Deadlock found = accuse_side(
        busy, Reason::kGpuWait,
        "by NCCL's counts all have launched the same, so that this is for no collective of the others", false);
    found.may_be_a_step = true;
    return found;
  }

  std::vector<std::size_t> all_members() const {
    std::vector<std::size_t> members;
    for (const Side& side : sides_) members.insert(members.end(), side.begin(), side.end());
    return members;
  }

  bool known_from_gpus() const {
    return std::all_of(sides_.begin(), sides_.end(),
                       [&](const Side& side) { return states_[side.front()].known_from_gpu; });
  }
  // Whether the suspects are accused of not having launched what the others wait for, although their GPU runs a
  // collective.
  bool accuses_a_collective_kernel(const Deadlock& found) const {
    return std::any_of(found.suspects.begin(), found.suspects.end(), [&](const Blame& blame) {
      return blame.reason == Reason::kGpuWait && states_[blame.state].gpu.in_collective();
    });
  }

  Deadlock accuse(const std::vector<std::size_t>& members, Reason reason, double confidence) const {
    Deadlock found;
    const std::set<std::size_t> accused(members.begin(), members.end());
    for (const std::size_t i : accused) found.suspects.push_back({i, reason, confidence});
    for (const Side& side : sides_) {
      Side others;
      std::copy_if(side.begin(), side.end(), std::back_inserter(others),
                   [&](std::size_t i) { return !accused.contains(i); });
      if (!others.empty())
        found.explanation += (found.explanation.empty() ? "" : ", ") + describe_side(job_, states_, others);
    }
    return found;
  }

  // Ranks that wait at one line, by the roots of their collective (the source of a broadcast). Empty if it has none, if
  // one is not known, or if the groups differ.
  std::map<int, Side> by_root(const Side& side) const {
    std::map<int, Side> found;
    for (const std::size_t i : side) {
      const RankState& s = states_[i];
      if (!s.root || !s.group || s.group->ranks.empty() || s.group != states_[side.front()].group) return {};
      found[*s.root].push_back(i);
    }
    return found;
  }

  // Those whose root is not that of most of the side; all of them if there is no such root, then `equal` is set.
  static Side with_another_root(const std::map<int, Side>& roots, std::size_t all, bool& equal) {
    equal = std::none_of(roots.begin(), roots.end(), [&](const auto& one) { return one.second.size() * 2 > all; });
    Side others;
    for (const auto& [root, members] : roots)
      if (members.size() * 2 <= all) others.insert(others.end(), members.begin(), members.end());
    std::sort(others.begin(), others.end());
    return others;
  }

  // All wait at one line, and one root is not that of most of them: then it is another call. Nothing is concluded where
  // some are elsewhere already, because ranks may be roots in turn, and a rank at a later turn is further on.
  std::optional<Deadlock> another_root() const {
    bool equal = false;
    const Side accused = with_another_root(by_root(sides_.front()), sides_.front().size(), equal);
    if (equal || accused.empty()) return std::nullopt;
    Deadlock found = accuse(accused, Reason::kCollectiveMismatch, kPartnersKnown);
    found.explanation += ", of which another rank is the root";
    return found;
  }

  // In the function that calls the collective there is a `for` loop around it, or a loop further out is in another
  // round than that of another rank: ranks may be roots in turn, and this one at another turn.
  bool may_take_turns(std::size_t i, std::size_t other) const {
    const auto& path = states_[i].path;
    return path.empty() || path.back().loops != 0 || in_different_rounds(job_, states_[i], states_[other]);
  }

  // Some wait at one line with different roots, and counters show that it is one step: they are not in one call,
  // whatever the others do, who may have gone on, as those do that are no root of a gather. Of as many ranks with one
  // root as with another, only those that have gone on know which is right: then none is accused. Where no counters
  // show it, most of them are right if they cannot take turns.
  std::optional<Deadlock> several_roots_in_one_step() const {
    for (const Side& side : sides_) {
      const std::map<int, Side> roots = by_root(side);
      if (roots.size() < 2) continue;
      bool equal = false;
      const Side accused = with_another_root(roots, side.size(), equal);
      const bool one_step = std::all_of(side.begin(), side.end(), [&](std::size_t i) {
        return in_one_round(job_, states_[i], states_[side.front()]);
      });
      if (!one_step && (equal || std::any_of(side.begin(), side.end(),
                                             [&](std::size_t i) { return may_take_turns(i, side.front()); })))
        continue;
      std::string explanation = describe_side(job_, states_, side) + ", with different roots in one step";
      if (equal && side.size() < states_[side.front()].group->ranks.size())
        return Deadlock{.suspects = {},
                        .explanation = explanation + "; which of them is right does not show where they stand",
                        .reference = {},
                        .candidates = accused};
      return accuse_side(accused, Reason::kCollectiveMismatch, std::move(explanation), equal);
    }
    return std::nullopt;
  }

  // They wait at one place, for collectives that were called before. Each rank's gloo runs some: of those that all wait
  // alike in a hang, none has finished.
  std::optional<Deadlock> another_collective_in_gloo() const {
    std::map<std::vector<std::string>, Side> by_work;
    for (const std::size_t i : sides_.front()) {
      const std::size_t rank = states_[i].rank;
      auto work = collectives_in_gloo(job_.frames, job_.ranks[rank], facts_.roles[rank]);
      if (work.empty()) return std::nullopt;
      by_work[std::move(work)].push_back(i);
    }
    if (by_work.size() != 2) return std::nullopt;
    const auto side = [](const auto& one) {
      return DifferentOperation{one.second, fmt::format("{}", fmt::join(one.first, " and "))};
    };
    return accuse_smaller_side(job_, states_, "what gloo runs", side(*by_work.begin()), side(*by_work.rbegin()));
  }

  // The user's own code waits for a key of the store, which anybody may set, or nobody. What the library waits for
  // there (a new group, a barrier) is set by ranks that make the same call.
  bool asks_store_itself(std::size_t i) const {
    if (!in_store(i)) return false;
    const ThreadSnapshot& thread = job_.ranks[states_[i].rank].threads[states_[i].doing.thread];
    for (std::size_t f = states_[i].doing.frame; f < thread.frames.size(); ++f) {
      const Frame& frame = job_.frames[thread.frames[f]];
      if (frame.kind == FrameKind::kPython) return is_users_code(frame);
    }
    return false;
  }

  // They are in collectives with different roots: a rank with another root may be a turn ahead.
  bool several_roots(const Side& side) const {
    return std::any_of(side.begin(), side.end(), [&](std::size_t i) {
      return states_[i].root && states_[side.front()].root && *states_[i].root != *states_[side.front()].root;
    });
  }

  // In collectives of MPI, whose communicators are not read: ranks in one and the same call may be in several of them.
  bool in_unread_communicators(const Side& side) const {
    const RankState& s = states_[side.front()];
    return !s.group && s.doing.activity == known::Activity::kCollective && s.doing.operation.call.starts_with("MPI_");
  }

  // Some ranks call from atexit or the interpreter's end, or while they handle an exception (in a `finally` or
  // `except`). What they wait for there is not part of what the others are doing.
  std::optional<Deadlock> by_exception() const {
    std::vector<std::size_t> ending;
    std::size_t all = 0;
    for (const Side& side : sides_)
      for (const std::size_t i : side) {
        ++all;
        if ((states_[i].doing.in_teardown ||
             handles_failure(job_.ranks[states_[i].rank].threads[states_[i].doing.thread])) &&
            facts_.waits.is_needed(states_[i].rank))
          ending.push_back(i);
      }
    if (ending.empty() || ending.size() * 2 > all) return std::nullopt;
    return accuse(ending, Reason::kException, kByPlace);
  }

  // Each rank waits for what the next one holds or should send: two ranks that take the locks of two files in
  // opposite order, two that both receive.
  std::optional<Deadlock> circle_of_peers() const {
    std::vector<Blame> circle;
    std::vector<std::size_t> members;
    for (std::size_t o = 0; o < operations_.size(); ++o) {
      const std::size_t i = operations_[o].members.front();  // a rank whose peer is known is an operation of its own
      if (!states_[i].peer_process || !facts_.waits.in_cycle(o)) continue;
      members.push_back(i);
      circle.push_back({i,
                        states_[i].doing.operation.kind == known::OperationKind::kProcessLock ? Reason::kFileIo
                                                                                              : Reason::kUnmatchedP2p,
                        kPartnersKnown});
    }
    if (circle.empty()) return std::nullopt;
    Deadlock found = accuse(members, Reason::kFileIo, kPartnersKnown);
    std::sort(circle.begin(), circle.end(), [](const Blame& a, const Blame& b) { return a.state < b.state; });
    found.suspects = std::move(circle);
    return found;
  }

  // Most ranks wait in a collective for ranks that wait for their GPUs, as members of its group. Either these wait for
  // a collective's kernel, which is then another one, or for a kernel of their own.
  std::optional<Deadlock> absent_from_a_group() const {
    if (!waits_for_gpu()) return std::nullopt;
    for (const PendingOperation& operation : operations_) {
      if (!operation.certain || operation.members.size() * 2 <= ranks_ ||
          states_[operation.members.front()].doing.activity != known::Activity::kCollective)
        continue;
      std::vector<std::size_t> absent;
      for (const std::size_t other : operation.operations)
        absent.insert(absent.end(), operations_[other].members.begin(), operations_[other].members.end());
      if (absent.empty() || !std::all_of(absent.begin(), absent.end(),
                                         [&](std::size_t i) { return states_[i].gpu_wait_may_be_collective; }))
        continue;
      const bool compute = std::all_of(absent.begin(), absent.end(), [&](std::size_t i) {
        return gpu_computes(job_, job_.ranks[states_[i].rank]) == true;
      });
      return with_reference(accuse(absent, compute ? Reason::kGpuWait : Reason::kCollectiveMismatch, kAbsentFromGroup),
                            kFromGroups);
    }
    return std::nullopt;
  }

  // A connection takes both ends. Ranks that set one up for a message, while nobody else does, have a peer that does
  // not come: it would be among those that connect. Half of the ranks may connect with each other, as far as is known,
  // unless there is one alone, and the messages of all others run on their GPUs.
  std::vector<std::size_t> nobody_connects_with() const {
    std::vector<std::size_t> connecting;
    for (const PendingOperation& operation : operations_)
      std::copy_if(operation.members.begin(), operation.members.end(), std::back_inserter(connecting),
                   [&](std::size_t i) { return states_[i].doing.connects || has_not_launched_its_message(i); });
    const auto runs_a_message = [&](std::size_t i) { return is_p2p(i) && states_[i].named_by_gpu; };
    const bool one_alone = connecting.size() == 1 && all_others(connecting.front(), runs_a_message);
    if (connecting.size() * 2 >= ranks_ && !one_alone) connecting.clear();
    return connecting;
  }
  bool all_others(std::size_t one, const std::function<bool(std::size_t)>& is_so) const {
    return std::all_of(operations_.begin(), operations_.end(), [&](const PendingOperation& operation) {
      return std::all_of(operation.members.begin(), operation.members.end(),
                         [&](std::size_t i) { return i == one || is_so(i); });
    });
  }

  // It is in a send or receive, and its GPU was asked and runs nothing, while the kernels of all others that send or
  // receive wait on their GPUs: it has come no further than to set its message up.
  bool has_not_launched_its_message(std::size_t i) const {
    if (!is_p2p(i) || states_[i].gpu.activity != GpuActivity::kIdle) return false;
    bool some_have = false;
    for (const Side& side : sides_)
      for (const std::size_t j : side) {
        if (!is_p2p(j) || states_[j].gpu.activity == GpuActivity::kIdle) continue;
        if (!states_[j].gpu.only_messages()) return false;
        some_have = true;
      }
    return some_have;
  }

  // Most ranks send and receive at one place of the program, as all ranks of an exchange do (all-to-all, a ring), and
  // the others wait in collectives: these have left the path of the majority.
  std::optional<Deadlock> majority_at_one_place() {
    const auto largest = std::max_element(sides_.begin(), sides_.end(),
                                          [](const Side& a, const Side& b) { return a.size() < b.size(); });
    const bool others_in_collectives = std::all_of(sides_.begin(), sides_.end(), [&](const Side& side) {
      return &side == &*largest || states_[side.front()].doing.activity == known::Activity::kCollective;
    });
    if (sides_.size() < 2 || largest->size() * 2 <= ranks_ || !is_p2p(largest->front()) || !others_in_collectives)
      return std::nullopt;
    guessed_ = true;
    return between_sides(Reason::kCollectiveMismatch, kPartnersGuessed);
  }

  // The receiver's distance to the rank that it receives from, around all ranks, in a message that this rank would be a
  // part of; std::nullopt if its peer is not known.
  std::optional<int> distance_of(const RankState& s) const {
    const RankSnapshot& rank = job_.ranks[s.rank];
    const Operation& operation = s.doing.operation;
    if (!s.peer || !rank.rank || !rank.world_size || *rank.world_size <= 0 || operation.sends == operation.receives)
      return std::nullopt;
    const int distance = operation.receives ? *s.peer - *rank.rank : *rank.rank - *s.peer;
    return (distance % *rank.world_size + *rank.world_size) % *rank.world_size;
  }

  // Ranks pass messages around by one rule: each receives from the neighbour on the same side. Of ranks in a circle
  // that wait at one line, some may have turned to the other side: those whose distance differs from that of most
  // messages which anybody waits for. Empty if none can be told from the others.
  std::vector<std::size_t> those_that_turn_to_another_side(const std::vector<std::size_t>& circle) const {
    if (circle.empty()) return {};
    const std::string place = place_key(job_, states_[circle.front()]);
    for (const std::size_t i : circle)
      if (place_key(job_, states_[i]) != place) return {};
    std::map<int, std::size_t> votes;
    std::size_t all = 0;
    for (const RankState& s : states_) {
      if (s.unrelated || s.doing.activity != known::Activity::kPointToPoint) continue;
      const auto distance = distance_of(s);
      if (!distance) continue;
      ++votes[*distance];
      ++all;
    }
    const auto most =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == votes.end() || most->second * 2 <= all) return {};
    std::vector<std::size_t> turned;
    std::copy_if(circle.begin(), circle.end(), std::back_inserter(turned),
                 [&](std::size_t i) { return distance_of(states_[i]) != most->first; });
    return turned.size() < circle.size() ? turned : std::vector<std::size_t>();
  }

  // Of ranks in a circle, those whose peer waits in a later step of the same loop: it has done all that it does in the
  // step of the rank that waits for it. (Its own wait for that rank is a matter of course.) Empty if none can be told
  // from the others.
  std::vector<std::size_t> those_whose_peer_is_further_on(const std::vector<std::size_t>& circle) const {
    std::vector<std::size_t> behind;
    const std::vector<std::int64_t> rounds =
        circle.empty() ? std::vector<std::int64_t>() : shared_rounds(job_, states_);
    for (const std::size_t i : circle)
      for (const std::size_t j : circle) {
        if (!states_[i].peer || states_[i].peer != job_.ranks[states_[j].rank].rank) continue;
        const Divergence divergence = divergence_of(states_[i], states_[j]);
        const bool by_rounds = divergence.counter.empty() && !rounds.empty() && rounds[i] < rounds[j] &&
                               place_key(job_, states_[i]) == place_key(job_, states_[j]);
        if (divergence.a_is_behind() || by_rounds) behind.push_back(i);
      }
    return behind.size() < circle.size() ? behind : std::vector<std::size_t>();
  }

  // One sends to the other, which receives from it, but their messages differ in tag or group. Neither is a step
  // behind: what it waits for would have come with an earlier message.
  std::vector<std::size_t> those_that_name_another_message(const std::vector<std::size_t>& circle) const {
    std::map<int, std::size_t> by_number;
    for (const std::size_t i : circle)
      if (const auto number = job_.ranks[states_[i].rank].rank) by_number.emplace(*number, i);
    std::vector<std::size_t> apart;
    for (const auto& [number, i] : by_number) {
      const RankState& s = states_[i];
      const auto peer = s.peer ? by_number.find(*s.peer) : by_number.end();
      if (peer == by_number.end() || states_[peer->second].peer != number) continue;
      const Operation &own = s.doing.operation, &its = states_[peer->second].doing.operation;
      if ((own.sends && its.receives) || (own.receives && its.sends)) apart.push_back(i);
    }
    return apart;
  }

  std::optional<Deadlock> unmatched() {
    std::vector<std::size_t> direct, in_circle, guessed;
    std::size_t p2p = 0;
    for (std::size_t o = 0; o < operations_.size(); ++o) {
      const PendingOperation& c = operations_[o];
      if (!is_p2p(c.members.front())) continue;
      p2p += c.members.size();
      if (c.operations.empty()) continue;
      const bool peer_is_elsewhere = std::any_of(c.operations.begin(), c.operations.end(), [&](std::size_t other) {
        return !is_p2p(operations_[other].members.front());
      });
      std::vector<std::size_t>& into = !c.certain ? guessed : peer_is_elsewhere ? direct : in_circle;
      if (&into == &in_circle && !facts_.waits.in_cycle(o)) continue;
      into.insert(into.end(), c.members.begin(), c.members.end());
    }
    if (!direct.empty()) return accuse(direct, Reason::kUnmatchedP2p, kPartnersKnown);
    if (const auto alone = nobody_connects_with(); !alone.empty())
      return accuse(alone, Reason::kUnmatchedP2p, kNobodyConnects);
    if (const auto apart = those_that_name_another_message(in_circle); !apart.empty())
      return accuse(apart, Reason::kUnmatchedP2p, kPartnersKnown);
    if (const auto turned = those_that_turn_to_another_side(in_circle); !turned.empty())
      return accuse(turned, Reason::kUnmatchedP2p, kPartnersKnown);
    if (const auto behind = those_whose_peer_is_further_on(in_circle); !behind.empty())
      return accuse(behind, Reason::kUnmatchedP2p, kPartnersKnown);
    if (!in_circle.empty()) return accuse(in_circle, Reason::kUnmatchedP2p, kPartnersKnown);
    if (p2p == 0) return std::nullopt;
    if (auto found = majority_at_one_place()) return found;
    if (auto found = within_stages()) return found;  // a stage that receives from another is normal in a pipeline
    // The peers are not known, but if all ranks receive, none sends.
    const auto all = [&](bool Operation::*does, bool Operation::*does_not) {
      return std::all_of(guessed.begin(), guessed.end(), [&](std::size_t i) {
        return states_[i].doing.operation.*does && !(states_[i].doing.operation.*does_not);
      });
    };
    const bool one_way = all(&Operation::receives, &Operation::sends) || all(&Operation::sends, &Operation::receives);
    if (!guessed.empty() && (p2p * 2 < ranks_ || (p2p * 2 == ranks_ && one_way))) {
      guessed_ = true;
      return accuse(guessed, Reason::kUnmatchedP2p, kPartnersGuessed);
    }
    return Deadlock{{}, "some of them in sends or receives: who waits for whom is not in these frames", false, ""};
  }

  std::optional<Deadlock> circle_of_groups() {
    std::map<std::string, Side> by_group;
    bool all_ranks = false;
    for (std::size_t o = 0; o < operations_.size(); ++o) {
      const PendingOperation& c = operations_[o];
      if (any_cycle_ && !facts_.waits.in_cycle(o)) continue;
      const RankState& s = states_[c.members.front()];
      if (!s.group || s.group->ranks.empty()) return std::nullopt;
      Side& side = by_group[s.group->name];
      side.insert(side.end(), c.members.begin(), c.members.end());
      const auto world = job_.ranks[s.rank].world_size;
      all_ranks |=
          s.group->name == kDefaultGroup && (!world || s.group->ranks.size() == static_cast<std::size_t>(*world));
    }
    if (!any_cycle_ || by_group.size() < 2) return std::nullopt;
    sides_.clear();
    for (auto& [name, side] : by_group) {
      std::sort(side.begin(), side.end());
      sides_.push_back(std::move(side));
    }
    if (all_ranks) {
      if (sides_.size() == 2)
        if (const Side few = smaller_side_of_shared(job_, states_, sides_[0], sides_[1]); !few.empty())
          return accuse(few, Reason::kCollectiveMismatch, kByPlace);
      return between_sides(Reason::kCollectiveMismatch, kPartnersKnown);
    }
    Deadlock found = between_sides(Reason::kProcessGroupOrder, kPartnersKnown);
    if (!found.suspects.empty()) return found;
    std::vector<std::size_t> all;  // each waits for the next, so none is the odd one
    for (const Side& side : sides_) all.insert(all.end(), side.begin(), side.end());
    found = accuse(all, Reason::kProcessGroupOrder, kEqualSides);
    found.explanation = in_words();
    found.sides_are_equal = true;
    return found;
  }

  std::string in_words() const {
    std::string text;
    for (const Side& side : sides_) text += (text.empty() ? "" : " while ") + describe_side(job_, states_, side);
    return text;
  }

  Deadlock between_sides(Reason reason, double confidence) {
    const auto largest = std::max_element(sides_.begin(), sides_.end(),
                                          [](const Side& a, const Side& b) { return a.size() < b.size(); });
    const auto how_many =
        std::count_if(sides_.begin(), sides_.end(), [&](const Side& side) { return side.size() == largest->size(); });
    std::size_t ranks = 0;
    for (const Side& side : sides_) ranks += side.size();
    const bool majority = how_many == 1 && largest->size() * 2 > ranks;
    const auto reason_of_side = [&](const Side& side, const Side& other) -> Reason {
      if (in_store(side.front())) return Reason::kStoreWait;
      return reason == Reason::kCollectiveMismatch &&
                     divergence_of(states_[side.front()], states_[other.front()]).a_is_behind()
                 ? Reason::kBehind
                 : reason;
    };
    if (majority) {
      Deadlock found;
      for (auto side = sides_.begin(); side != sides_.end(); ++side) {
        if (side == largest) continue;
        const Deadlock one = accuse(*side, reason_of_side(*side, *largest), confidence);
        found.suspects.insert(found.suspects.end(), one.suspects.begin(), one.suspects.end());
      }
      found.explanation = describe_side(job_, states_, *largest);
      return found;
    }
    if (sides_.size() > 2)
      if (std::vector<Side> merged = merge_same_calls(states_, sides_); !merged.empty()) {
        sides_ = std::move(merged);
        return between_sides(reason, confidence);
      }
    if (sides_.size() != 2)
      return {{}, fmt::format("they wait in {} different places, none with a majority", sides_.size()), false, ""};
    const Side &a = sides_[0], &b = sides_[1];
    const Reason reason_a = reason_of_side(a, b), reason_b = reason_of_side(b, a);
    if (reason_a == Reason::kBehind) return accuse(a, reason_a, kByPlace);
    if (reason_b == Reason::kBehind) return accuse(b, reason_b, kByPlace);
    if (asks_store_itself(a.front()) != asks_store_itself(b.front())) {
      const Side& asks = asks_store_itself(a.front()) ? a : b;
      if (!in_store((asks == a ? b : a).front())) {
        Deadlock found = accuse(asks, Reason::kStoreWait, kByPlace);
        found.explanation = describe_side(job_, states_, asks == a ? b : a);
        return found;
      }
    }
    if (several_roots(a) || several_roots(b))
      return {{}, in_words() + ": some of them with another root, and ranks may be roots in turn", false, ""};
    if (a.size() > 1 && (in_unread_communicators(a) || in_unread_communicators(b)))
      return {{}, in_words() + ": which communicators these are is not in the frames", false, ""};
    Deadlock found = accuse(a, reason_a, kEqualSides);
    const Deadlock other = accuse(b, reason_b, kEqualSides);
    found.suspects.insert(found.suspects.end(), other.suspects.begin(), other.suspects.end());
    found.explanation = in_words();
    found.sides_are_equal = true;
    return found;
  }

  const Facts& facts_;
  const JobSnapshot& job_;
  const std::vector<RankState>& states_;
  const std::vector<PendingOperation>& operations_;
  std::vector<Side> sides_;
  bool any_cycle_ = false;
  bool guessed_ = false;  // who sends to whom is concluded from how many do
  std::size_t ranks_ = 0;
};

}  // namespace

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

std::optional<Deadlock> explain_deadlock(const Facts& facts) { return Explanation(facts).explain(); }

}  // namespace rankstacks::analyzers
