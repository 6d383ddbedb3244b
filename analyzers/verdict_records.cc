// Jobs of which there is nothing but what PyTorch's Flight Recorders have dumped: which calls each rank has made, and
// which of them have not ended. Where a rank is that has not called what the others wait in, they do not say.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "analyzers/flight_records.h"
#include "analyzers/judge.h"
#include "analyzers/names.h"
#include "analyzers/verdict_words.h"
#include "base/text.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// In a healthy job a rank may call so much later than another, whatever its gaps were before.
constexpr double kShortestPauseMs = 10'000;
constexpr double kOfDumpsAlone = 0.15;  // as confidence.cc has it of other tools' dumps

}  // namespace

bool Judge::are_all_recorded() const {
  return !tally_.recorded_only.empty() && std::all_of(states_.begin(), states_.end(), [&](const RankState& s) {
    return s.unrelated || s.ended || s.recorded_only || has_present_record(job_.ranks[s.rank]) ||
           (!s.readable && tally_.failed.size() + tally_.ended.size() == tally_.compared);
  });
}

bool Judge::have_paused_for_longest(const std::vector<Blame>& suspects) const {
  double longest_gap = kShortestPauseMs;
  for (const RankState& s : states_)
    if (has_present_record(job_.ranks[s.rank]))
      longest_gap = std::max(longest_gap, job_.ranks[s.rank].flight_record->longest_gap_ms.value_or(0));
  return std::all_of(suspects.begin(), suspects.end(), [&](const Blame& blame) {
    const auto& record = job_.ranks[states_[blame.state].rank].flight_record;
    return record && record->last_call_ms.value_or(0) > longest_gap;
  });
}

Verdict Judge::of_records_alone() const {
  std::map<std::string, std::vector<std::size_t>> waiting;  // ranks, by what they wait in
  std::vector<std::size_t> others;
  for (const RankState& s : states_) {
    if (s.unrelated || !has_present_record(job_.ranks[s.rank])) continue;
    const std::string recorded = describe_recorded_wait(job_, job_.ranks[s.rank], facts_.roles[s.rank]);
    (recorded.empty() ? others : waiting[recorded]).push_back(s.rank);
  }
  std::string text;
  for (const auto& [operation, ranks] : waiting)
    text += fmt::format("{}{} {} in {}", text.empty() ? "" : ", ", name_ranks(job_, ranks),
                        ranks.size() == 1 ? "waits" : "wait", operation);
  if (!others.empty())
    text += fmt::format("{}{} in nothing, or in several things, that their Flight Recorders show",
                        text.empty() ? "" : ", ", name_ranks(job_, others) + (others.size() == 1 ? " waits" : " wait"));

  const auto found = explain_by_flight_records(job_, states_, facts_.roles);
  if (found && !found->suspects.empty()) {
    // A message that a rank has not called which waits in nothing: it may be held up, or the other has called too much.
    const auto is_message = [](const Blame& blame) { return blame.reason == Reason::kUnmatchedP2p; };
    if (!others.empty() && std::all_of(found->suspects.begin(), found->suspects.end(), is_message)) {
      Verdict verdict =
          undecided(fmt::format("{}; {}: these dumps do not show whether it is held up, or the call is one "
                                "too many",
                                text, found->explanation));
      for (const std::size_t i : tally_.recorded_only)
        if (states_[i].recorded.empty())
          verdict.candidates.push_back(
              {states_[i].rank, Reason::kBehind, "its stacks", "waits in nothing that is recorded"});
      return verdict;
    }
    const bool may_come = std::all_of(found->suspects.begin(), found->suspects.end(), [](const Blame& blame) {
      return blame.reason == Reason::kBehind || blame.reason == Reason::kGpuWait ||
             blame.reason == Reason::kUnmatchedP2p;
    });
    if (may_come && !have_paused_for_longest(found->suspects)) {
      Verdict verdict = undecided(
          fmt::format("{}; {}: these dumps do not show whether that call is only late", text, found->explanation));
      for (const Blame& blame : found->suspects)
        verdict.candidates.push_back({states_[blame.state].rank, blame.reason, "dumps of a later time, or its stacks",
                                      describe_suspect(job_, states_[blame.state], blame.reason)});
      return verdict;
    }
    std::vector<Suspect> suspects;
    for (const Blame& blame : found->suspects)
      suspects.push_back(suspect(states_[blame.state], blame.reason, bounded(blame.confidence - kOfDumpsAlone)));
    Verdict verdict = culprits(std::move(suspects), found->sides_are_equal ? "" : found->explanation);
    if (found->sides_are_equal)
      verdict.summary = make(VerdictStatus::kCulprit,
                             found->explanation + ": both cannot be right, and the dumps do not show which is")
                            .summary;
    verdict.reference = kFromFlightRecords;
    return verdict;
  }
  if (found) return undecided(fmt::format("{}; {}", text, found->explanation));
  const std::vector<int> absent = members_without_record(job_);
  if (!absent.empty() && !waiting.empty())
    return undecided(fmt::format("{}; no dump of rank{} {}, which {} of the group, is here", text,
                                 plural(absent.size()), format_numbers({absent.begin(), absent.end()}),
                                 absent.size() == 1 ? "is" : "are"));
  if (waiting.size() == 1 && others.empty() && tally_.recorded_only.size() == tally_.compared && tally_.compared > 1)
    return make(VerdictStatus::kSymmetric,
                fmt::format("all ranks have called the same: {}; the cause lies below that call (network, GPU), or in "
                            "what only stacks show",
                            text));
  return undecided(fmt::format("{}; their dumps show no difference that explains it: stacks would", text));
}

}  // namespace rankstacks::analyzers
