#include "analyzers/pending_operations.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

enum class Kind { kCollective, kPointToPoint, kStore, kPeer };

Kind kind_of(const RankState& s) {
  if (s.doing.activity == known::Activity::kPointToPoint) return Kind::kPointToPoint;
  if (s.doing.activity == known::Activity::kPeerWait) return Kind::kPeer;
  return s.doing.activity == known::Activity::kStoreWait ? Kind::kStore : Kind::kCollective;
}

bool same_group(const RankState& a, const RankState& b) { return !a.group || !b.group || *a.group == *b.group; }

// Which collective it is, as far as known. If many collectives share the call, the place has to distinguish them.
bool same_operation(const RankState& a, const RankState& b, const std::string& place_a, const std::string& place_b) {
  if (a.known_from_gpu && b.known_from_gpu) return may_be_same_collective(a.gpu, b.gpu);
  // Of two groups a rank may wait in both, and its watchdogs have named one of them.
  if (a.timed_out && b.timed_out && a.timed_out->is_of_group(*b.timed_out) && a.timed_out->is_collective() &&
      b.timed_out->is_collective())
    return a.timed_out->is_same(*b.timed_out);
  if (a.doing.operation.generic || b.doing.operation.generic || a.gpu_wait_may_be_collective ||
      b.gpu_wait_may_be_collective)
    return place_a == place_b;
  return same_call(a.doing.operation, b.doing.operation);
}

class OperationFinder {
 public:
  OperationFinder(const JobSnapshot& job, const std::vector<RankState>& states, const MissingRanks& missing)
      : job_(job), states_(states), missing_(missing.certain), operation_of_(states.size(), kNone) {}

  std::vector<PendingOperation> find() {
    group_those_alike();
    for (std::size_t o = 0; o < operations_.size(); ++o) find_needs(o);
    return std::move(operations_);
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;

  struct Key {
    int kind;
    std::string place, group, timed_out;
    int peer;
    std::size_t own;  // a rank whose peer is known has an operation of its own
    auto operator<=>(const Key&) const = default;
  };

  // What the watchdogs of the ranks at one place say. A rank that another one's end has ended says nothing; it is in
  // what the others there are in, if that is one operation.
  class TimedOutWorks {
   public:
    void add(const std::string& place, const RankState& s) {
      if (s.timed_out) works_[place].insert(describe_work(*s.timed_out));
    }
    std::string of(const std::string& place, const RankState& s) const {
      if (s.timed_out) return describe_work(*s.timed_out);
      const auto found = works_.find(place);
      return found != works_.end() && found->second.size() == 1 ? *found->second.begin() : "";
    }

   private:
    std::map<std::string, std::set<std::string>> works_;
  };

  Key key_of(std::size_t i, const TimedOutWorks& works) const {
    const RankState& s = states_[i];
    std::string place = place_key(job_, s);
    std::string work = works.of(place, s);
    return {static_cast<int>(kind_of(s)),
            std::move(place),
            s.group ? s.group->name + '|' + format_numbers(s.group->ranks, SIZE_MAX) : "",
            std::move(work),
            s.peer.value_or(-1),
            s.peer || s.peer_process ? i : kNone};
  }

  void group_those_alike() {
    std::map<Key, std::size_t> index;
    TimedOutWorks works;
    for (const RankState& s : states_)
      if (s.timed_out && !s.unrelated) works.add(place_key(job_, s), s);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const RankState& s = states_[i];
      if (s.unrelated) continue;
      by_process_.emplace(s.rank, i);
      if (const auto number = job_.ranks[s.rank].rank; number && (s.readable || s.ended))
        by_number_.emplace(*number, i);
      if (s.ended) others_.push_back(i);
      if (!s.readable) continue;
      if (!s.waits()) {
        others_.push_back(i);
        continue;
      }
      const Key key = key_of(i, works);
      const auto [it, is_new] = index.emplace(key, operations_.size());
      if (is_new) {
        operations_.emplace_back();
        places_.push_back(key.place);
      }
      operation_of_[i] = it->second;
      operations_[it->second].members.push_back(i);
    }
  }

  const RankState& first_of(std::size_t operation) const {
    return states_[representative_of(operations_[operation], states_)];
  }

  // The members of the other operation are where this one needs them.
  bool has_arrived(std::size_t operation, std::size_t other) const {
    const RankState &s = first_of(operation), &o = first_of(other);
    if (kind_of(s) != kind_of(o)) return false;
    if (kind_of(s) == Kind::kPointToPoint) {
      const Operation &own = s.doing.operation, &opposite_call = o.doing.operation;
      const bool opposite = (own.sends && opposite_call.receives) || (own.receives && opposite_call.sends);
      const auto own_number = job_.ranks[s.rank].rank;
      // A message has a group and a tag, which the other side has to name as well.
      const bool same_tag = !s.tag || !o.tag || *s.tag == *o.tag;
      return opposite && same_tag && same_group(s, o) && (!o.peer || !own_number || *o.peer == *own_number);
    }
    return same_group(s, o) && same_operation(s, o, places_[operation], places_[other]);
  }

  void need(std::size_t o, std::size_t state) {
    const std::size_t its = operation_of_[state];
    if (its == kNone) operations_[o].elsewhere.push_back(state);
    else if (its != o) operations_[o].operations.push_back(its);
  }

  void find_needs(std::size_t o) {
    PendingOperation& operation = operations_[o];
    const RankState& s = first_of(o);
    std::vector<int> named;  // the ranks that it needs, if known
    if (kind_of(s) == Kind::kPointToPoint && s.peer) named = {*s.peer};
    else if (kind_of(s) == Kind::kCollective && s.group) named = s.group->ranks;
    else if (kind_of(s) == Kind::kCollective && s.timed_out) named = members_of_group(job_.ranks[s.rank], *s.timed_out);
    operation.certain = !named.empty() || s.peer_process;
    if (s.peer_process)
      if (const auto it = by_process_.find(*s.peer_process); it != by_process_.end()) need(o, it->second);
    for (const int number : named) {
      const auto it = by_number_.find(number);
      if (it == by_number_.end()) {
        operation.unseen.push_back(number);
        continue;
      }
      const std::size_t its = operation_of_[it->second];
      if (its == kNone || (its != o && !has_arrived(o, its))) need(o, it->second);
    }
    if (operation.certain) {
      std::sort(operation.operations.begin(), operation.operations.end());
      operation.operations.erase(std::unique(operation.operations.begin(), operation.operations.end()),
                                 operation.operations.end());
      return;
    }
    operation.elsewhere = others_;
    operation.unseen = missing_;
    for (std::size_t other = 0; other < operations_.size(); ++other)
      if (other != o && !has_arrived(o, other)) operation.operations.push_back(other);
  }

  const JobSnapshot& job_;
  const std::vector<RankState>& states_;
  const std::vector<int>& missing_;  // derived from the world size
  std::vector<PendingOperation> operations_;
  std::vector<std::string> places_;        // place_key of each operation's members
  std::vector<std::size_t> operation_of_;  // by state; kNone if it waits in none
  std::vector<std::size_t> others_;
  std::map<int, std::size_t> by_number_;
  std::unordered_map<std::size_t, std::size_t> by_process_;
};

}  // namespace

std::vector<PendingOperation> pending_operations(const JobSnapshot& job, const std::vector<RankState>& states,
                                                 const MissingRanks& missing) {
  return OperationFinder(job, states, missing).find();
}

std::size_t representative_of(const PendingOperation& operation, const std::vector<RankState>& states) {
  const auto found = std::find_if(operation.members.begin(), operation.members.end(),
                                  [&](std::size_t i) { return states[i].timed_out.has_value(); });
  return found == operation.members.end() ? operation.members.front() : *found;
}

bool all_certain(const std::vector<PendingOperation>& operations) {
  return std::all_of(operations.begin(), operations.end(), [](const PendingOperation& o) { return o.certain; });
}

std::string describe_wait(const RankState& state, std::size_t ranks_in_all) {
  const Operation& operation = state.doing.operation;
  if (operation.is_none() && state.timed_out) return "in " + describe_work(*state.timed_out);
  if (operation.is_none() && state.gpu_wait_may_be_collective && !state.recorded.empty())
    return fmt::format("for the GPU (by its Flight Recorder in {})", state.recorded);
  if (operation.is_none()) return state.gpu_wait_may_be_collective ? "for the GPU" : "for the other ranks";
  std::string text = "in " + operation.name;
  if (!state.launched_otherwise.empty()) text += fmt::format(" ({})", state.launched_otherwise);
  if (state.named_by_gpu) text += " on the GPU";
  if (state.peer) {
    const std::string_view direction = !operation.sends ? "from" : operation.receives ? "with" : "to";
    text += fmt::format(" {} rank {}", direction, *state.peer);
  }
  if (!state.group) return text;
  const bool some_ranks = !state.group->ranks.empty() && state.group->ranks.size() < ranks_in_all;
  if (state.group->name != kDefaultGroup || some_ranks) text += fmt::format(" of group {}", state.group->name);
  const bool described = state.group->name != kDefaultGroup && !state.group->description.empty();
  if (described && some_ranks)
    text += fmt::format(" ({}; ranks {})", state.group->description, format_numbers(state.group->ranks));
  else if (described) text += fmt::format(" ({})", state.group->description);
  else if (some_ranks) text += fmt::format(" (ranks {})", format_numbers(state.group->ranks));
  return text;
}

}  // namespace rankstacks::analyzers
