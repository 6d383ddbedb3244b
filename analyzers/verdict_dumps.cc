// What the dumps of other tools cannot tell: each shows one moment of one process, they were made one after the other,
// and they lack the other ends of calls, groups and, mostly, states.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "analyzers/judge.h"
#include "analyzers/names.h"
#include "analyzers/other_threads.h"
#include "analyzers/place.h"
#include "analyzers/verdict_words.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// Whether the rank's thread runs, as far as a dump shows it; std::nullopt: it does not.
std::optional<bool> runs_in_dump(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.state == 'R' || thread.gil == Gil::kHolds) return true;
  if (thread.state) return false;
  if (!blocking_call(job, thread).empty() || is_in_sleep(job, thread)) return false;
  if (thread.frames.empty() || job.frames[thread.frames.front()].kind == FrameKind::kPython) return std::nullopt;
  return true;  // native code that is not in the C library
}

// What the rank does within its process, and may have done a moment later, as long as nothing shows that it cannot.
bool is_within_process(Reason reason) {
  return reason == Reason::kUserCode || reason == Reason::kDataLoading || reason == Reason::kPythonLock;
}

}  // namespace

std::optional<Verdict> Judge::of_dumps_apart() const {
  std::vector<std::size_t> apart = tally_.unknown;
  std::set<std::string> places;
  for (const std::size_t i : tally_.elsewhere) {
    places.insert(place_key(job_, states_[i]));
    apart.push_back(i);
  }
  const bool from_dumps = std::any_of(
      apart.begin(), apart.end(), [&](std::size_t i) { return job_.ranks[states_[i].rank].source == Source::kDump; });
  if (!from_dumps || places.empty() || places.size() + tally_.unknown.size() < 2) return std::nullopt;
  std::sort(apart.begin(), apart.end());
  const std::string waiting = tally_.waiting.empty() ? "" : describe_waiting(job_, states_) + "; ";
  return undecided(
      fmt::format("{}{} are at different places, and the output of other tools does not show whether one of "
                  "them waits for another",
                  waiting, name_ranks(job_, ranks_of(apart))));
}

bool Judge::dumps_lack(FrameKind kind) const {
  return std::any_of(states_.begin(), states_.end(), [&](const RankState& s) {
    const RankSnapshot& rank = job_.ranks[s.rank];
    const ThreadSnapshot* thread = leading_thread(job_, s);
    if (rank.source != Source::kDump || thread == nullptr) return false;
    if (kind == FrameKind::kPython && !rank.python_version) return false;
    return std::none_of(thread->frames.begin(), thread->frames.end(),
                        [&](FrameId id) { return job_.frames[id].kind == kind; });
  });
}

std::string Judge::not_shown_by_dumps(const Verdict& verdict) const {
  const std::vector<Suspect>& suspects = verdict.suspects;
  const auto all = [&](auto holds) { return std::all_of(suspects.begin(), suspects.end(), holds); };
  const auto all_wait = [&](auto holds) {
    return std::all_of(tally_.waiting.begin(), tally_.waiting.end(),
                       [&](std::size_t i) { return holds(states_[i].doing.operation); });
  };
  if (verdict.status != VerdictStatus::kCulprit || suspects.empty() ||
      !all([&](const Suspect& s) { return job_.ranks[s.rank].source == Source::kDump; }))
    return "";
  constexpr std::string_view kMoment = "dumps show one moment of each rank, and not whether it moves";
  if (all([](const Suspect& s) { return is_within_process(s.reason); })) {
    if (suspects.size() > 1 || tally_.inferred) return std::string(kMoment);
    const auto state = std::find_if(states_.begin(), states_.end(),
                                    [&](const RankState& s) { return s.rank == suspects.front().rank; });
    const ThreadSnapshot* thread = state == states_.end() ? nullptr : leading_thread(job_, *state);
    const bool in_own_code = suspects.front().reason == Reason::kUserCode;
    const std::optional<bool> runs = thread == nullptr ? std::nullopt : runs_in_dump(job_, *thread);
    if (in_own_code && runs == true) return std::string(kMoment);
    if (job_.ranks[suspects.front().rank].rank == 0) {
      if (in_own_code && !runs) return fmt::format("rank 0 evaluates or saves now and then, and {}", kMoment);
      const bool expect_work = all_wait([](const Operation& operation) {
        return operation.collective == known::Collective::kBroadcast ||
               operation.collective == known::Collective::kScatter ||
               operation.collective == known::Collective::kUnknown;
      });
      if (expect_work && suspects.front().reason != Reason::kDataLoading)
        return "it may wait for requests that it hands on, which dumps do not show";
    }
  }
  if (suspects.size() > 1 && suspects.size() < tally_.compared &&
      all([](const Suspect& s) { return s.reason == Reason::kUnmatchedP2p; }))
    return "dumps do not show for which ranks' messages they wait";
  if (all([](const Suspect& s) { return s.reason == Reason::kStoreWait; }) && all_wait([](const Operation& operation) {
        return operation.kind == known::OperationKind::kStore ||
               operation.kind == known::OperationKind::kStoreGreeting || operation.kind == known::OperationKind::kSetUp;
      }))
    return "all are in the set-up of their groups, and dumps do not show whether another rank has not come";
  return "";
}

Verdict Judge::with_doubt_of_dumps(Verdict verdict) const {
  const std::string doubt = not_shown_by_dumps(verdict);
  return doubt.empty() ? verdict : undecided(fmt::format("{}: {}", verdict.summary, doubt));
}

}  // namespace rankstacks::analyzers
