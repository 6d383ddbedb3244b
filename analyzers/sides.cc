#include "analyzers/sides.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/coordinates.h"
#include "analyzers/divergence.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// If no stage has ranks on both sides, one stage is ahead of another.
bool splits_between_stages(const JobSnapshot& job, const std::vector<RankState>& states, const Side& a, const Side& b) {
  const std::vector<int> stage_of = pipeline_stages(job);
  if (stage_of.empty()) return false;
  std::set<int> stages;
  for (const std::size_t i : a) stages.insert(stage_of[states[i].rank]);
  return std::none_of(b.begin(), b.end(), [&](std::size_t i) { return stages.contains(stage_of[states[i].rank]); });
}

}  // namespace

std::vector<Side> sides_by_place(const Facts& facts) {
  // By place, and there by group: "" for ranks whose group is not known.
  std::map<std::string, std::map<std::string, Side>> places;
  for (const PendingOperation& operation : facts.operations)
    for (const std::size_t i : operation.members) {
      const RankState& s = facts.states[i];
      places[place_key(facts.job, s)][s.group ? s.group->name : ""].push_back(i);
    }
  std::vector<Side> sides;
  for (auto& [place, groups] : places) {
    // If all others at a place are in one group, so is, as far as is known, a rank there whose group was not read.
    if (groups.size() == 2 && groups.contains("")) {
      const Side unread = std::move(groups[""]);
      groups.erase("");
      Side& others = groups.begin()->second;
      others.insert(others.end(), unread.begin(), unread.end());
    }
    for (auto& [group, side] : groups) sides.push_back(std::move(side));
  }
  for (Side& side : sides) std::sort(side.begin(), side.end());
  std::sort(sides.begin(), sides.end());
  return sides;
}

std::vector<Side> split_by_counter(const JobSnapshot& job, const std::vector<RankState>& states, const Side& all) {
  const RankState& first = states[all.front()];
  // The stages of a pipeline are at different steps by design.
  if (first.doing.activity == known::Activity::kPointToPoint) return {};
  for (std::size_t level = 0; level < first.path.size(); ++level)
    for (const auto& number : first.path[level].numbers) {
      std::map<std::int64_t, Side> by_value;
      for (const std::size_t i : all) {
        const auto& numbers = level < states[i].path.size() ? states[i].path[level].numbers : first.path[level].numbers;
        const auto same =
            std::find_if(numbers.begin(), numbers.end(), [&](const auto& n) { return n.first == number.first; });
        if (same != numbers.end()) by_value[same->second].push_back(i);
      }
      if (by_value.size() != 2) continue;
      const Side &low = by_value.begin()->second, &high = by_value.rbegin()->second;
      if (low.size() + high.size() != all.size() || low.size() == high.size() || all.size() < 3) continue;
      if (splits_between_stages(job, states, low, high)) continue;
      return {low, high};
    }
  return {};
}

std::vector<Side> merge_same_calls(const std::vector<RankState>& states, const std::vector<Side>& sides) {
  std::vector<Side> merged;
  std::map<std::string, std::size_t> by_call;
  for (const Side& side : sides) {
    const RankState& s = states[side.front()];
    const Operation& operation = s.doing.operation;
    if (s.doing.activity != known::Activity::kCollective || operation.generic || !s.group) {
      merged.push_back(side);
      continue;
    }
    const auto [it, is_new] = by_call.emplace(
        fmt::format("{}|{}|{}", operation.key(), s.group->name, format_numbers(s.group->ranks, SIZE_MAX)),
        merged.size());
    if (is_new) merged.push_back(side);
    else merged[it->second].insert(merged[it->second].end(), side.begin(), side.end());
  }
  if (merged.size() == sides.size() || merged.size() == 1) return {};
  return merged;
}

Side smaller_side(const Side& a, const Side& b, bool& equal) {
  equal = a.size() == b.size();
  if (!equal) return a.size() < b.size() ? a : b;
  Side both = a;
  both.insert(both.end(), b.begin(), b.end());
  std::sort(both.begin(), both.end());
  return both;
}

Side smaller_side_of_shared(const JobSnapshot& job, const std::vector<RankState>& states, const Side& a,
                            const Side& b) {
  // The members of a side that belong to the group in which the other one waits.
  const auto shared = [&](const Side& side, const Side& other) {
    Side found;
    const auto& group = states[other.front()].group;
    if (!group) return found;
    const std::set<int> ranks(group->ranks.begin(), group->ranks.end());
    std::copy_if(side.begin(), side.end(), std::back_inserter(found), [&](std::size_t i) {
      const auto number = job.ranks[states[i].rank].rank;
      return number && ranks.contains(*number);
    });
    return found;
  };
  const Side of_a = shared(a, b), of_b = shared(b, a);
  if (of_a.empty() || of_b.empty() || of_a.size() == of_b.size()) return {};
  return of_a.size() < of_b.size() ? of_a : of_b;
}

std::string name_side(const JobSnapshot& job, const std::vector<RankState>& states, const Side& members) {
  std::vector<std::size_t> ranks;
  for (const std::size_t i : members) ranks.push_back(states[i].rank);
  return name_ranks(job, ranks);
}

std::string describe_side(const JobSnapshot& job, const std::vector<RankState>& states, const Side& members) {
  RankState s = states[members.front()];
  if (std::any_of(members.begin(), members.end(), [&](std::size_t i) { return states[i].peer != s.peer; }))
    s.peer.reset();  // each has another one
  std::string text = fmt::format("{} {} {}", name_side(job, states, members), members.size() == 1 ? "waits" : "wait",
                                 describe_wait(s, states.size()));
  std::string where = describe_place(job, job.ranks[s.rank].threads[s.doing.thread]);
  if (const std::string counter = describe_counter(s); !counter.empty()) where += (where.empty() ? "" : ", ") + counter;
  if (!where.empty()) text += fmt::format(" ({})", where);
  return text;
}

}  // namespace rankstacks::analyzers
