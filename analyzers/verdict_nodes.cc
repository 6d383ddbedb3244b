#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "analyzers/judge.h"
#include "analyzers/node_words.h"
#include "analyzers/verdict_words.h"
#include "base/text.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// "node-3 (ranks 4-5): ssh: no route to host; node-4: ..."
std::string describe_silent(const JobSnapshot& job) {
  constexpr std::size_t kMax = 3;
  std::string text;
  const std::vector<NodeGroup> groups = node_groups(job);
  for (std::size_t i = 0; i < std::min(groups.size(), kMax); ++i)
    text += (text.empty() ? "" : "; ") + describe_nodes(job, groups[i]);
  return groups.size() > kMax ? fmt::format("{} and {} more kinds", text, groups.size() - kMax) : text;
}

}  // namespace

std::optional<Verdict> Judge::of_silent_nodes(const MissingRanks& missing) const {
  std::map<int, const NodeSnapshot*> node_of;
  bool some_silent = false;
  for (const NodeSnapshot& node : job_.nodes) {
    some_silent |= node.fault != NodeFault::kNone;
    for (const int rank : node.ranks) node_of[rank] = &node;
  }
  if (missing.elsewhere.empty() || !some_silent) return std::nullopt;
  const std::string waiting = describe_waiting(job_, states_);
  std::vector<Suspect> suspects;
  std::vector<int> gone;
  constexpr std::size_t kMaxSuspects = 64;
  for (const int number : missing.elsewhere) {
    const auto it = node_of.find(number);
    if (it == node_of.end() || !may_be_dead(it->second->fault)) continue;
    gone.push_back(number);
    if (suspects.size() == kMaxSuspects) continue;
    Suspect one;
    one.rank = SIZE_MAX;
    one.missing_rank = number;
    one.reason = Reason::kMissing;
    one.summary = fmt::format("rank {} is on {}, which could not be reached: {}: {}", number, it->second->name,
                              it->second->engine, phrase_of(it->second->fault));
    one.advice = fmt::format("look at {}: is it up, and does its network work?", it->second->name);
    one.confidence = bounded(0.60);
    suspects.push_back(std::move(one));
  }
  if (suspects.empty())
    return undecided(fmt::format("{}; ranks {} were not looked at: {}", waiting, format_numbers(missing.elsewhere),
                                 describe_silent(job_)));
  Verdict verdict =
      make(VerdictStatus::kCulprit,
           fmt::format("rank{} {} {} on nodes that could not be reached, while {}: {}", plural(gone.size()),
                       format_numbers(gone), gone.size() == 1 ? "is" : "are", waiting, describe_silent(job_)));
  verdict.suspects = std::move(suspects);
  return verdict;
}

}  // namespace rankstacks::analyzers
