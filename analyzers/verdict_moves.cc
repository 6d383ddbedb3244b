#include "analyzers/judge.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "analyzers/verdict_words.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {

std::string Judge::moving() const {
  std::vector<std::size_t> ranks;
  for (const RankState& s : states_)
    if (!s.unrelated && s.readable && (s.moves() || (s.left_wait && !s.waits()))) ranks.push_back(s.rank);
  return name_ranks(job_, ranks);
}

bool Judge::few_moved() const {
  std::size_t moved = 0;
  for (const RankState& s : states_) moved += !s.unrelated && s.readable && s.moves();
  return moved * 2 <= tally_.compared;
}

// If few ranks moved, and the waits of all others have not ended in a time in which most steps do: the loop of those
// that move may be one without an end.
std::string Judge::still_waiting_words() const {
  if (!few_moved() || !have_sampled_long()) return "";
  std::vector<std::size_t> still;
  for (const std::size_t i : tally_.waiting)
    if (!states_[i].moves()) still.push_back(i);
  if (still.empty()) return "";
  return fmt::format("; {} waited all the while ({:.0f} s): look again if that is longer than it should be",
                     name_ranks(job_, ranks_of(still)), span_ms() / 1000);
}

std::optional<Verdict> Judge::of_progress() const {
  if (some_wait_ended()) return of_ended_waits();
  const bool passed_by = std::any_of(tally_.needed.begin(), tally_.needed.end(), [&](std::size_t i) {
    return divergence_from_those_it_passed(states_[i]).has_value();
  });
  if (passed_by && have_sampled_long()) return std::nullopt;
  if (!tally_.unknown.empty() || !tally_.failed.empty()) return std::nullopt;
  auto verdict = of_counting(passed_by);
  if (!verdict) verdict = of_duties_of_rank_0();
  if (verdict && passed_by) verdict->doubt = Doubt::kPassedBy;
  return verdict;
}

bool Judge::some_wait_ended() const {
  const auto moves = [&](std::size_t i) { return states_[i].moves(); };
  return std::any_of(tally_.waiting.begin(), tally_.waiting.end(), moves) ||
         std::any_of(tally_.unknown.begin(), tally_.unknown.end(),
                     [&](std::size_t i) { return states_[i].in_driver() && moves(i); }) ||
         std::any_of(tally_.elsewhere.begin(), tally_.elsewhere.end(),
                     [&](std::size_t i) { return states_[i].left_wait; });
}

bool Judge::waits_for_still_ranks() const {
  // A rank that was sampled once may move, as far as is known.
  const auto may_move = [&](std::size_t i) { return states_[i].moves() || states_[i].progress == Progress::kUnknown; };
  for (std::size_t o = 0; o < facts_.operations.size(); ++o) {
    const PendingOperation& waiting = facts_.operations[o];
    if (!waiting.certain || std::any_of(waiting.members.begin(), waiting.members.end(), may_move)) continue;
    const bool needs_still_ones =
        std::any_of(waiting.operations.begin(), waiting.operations.end(), [&](std::size_t needed) {
          const auto& members = facts_.operations[needed].members;
          return std::none_of(members.begin(), members.end(), may_move);
        });
    if (std::any_of(waiting.elsewhere.begin(), waiting.elsewhere.end(),
                    [&](std::size_t i) { return !states_[i].active() && !may_move(i) && !states_[i].in_driver(); }) ||
        (needs_still_ones && facts_.waits.in_cycle(o)))
      return true;
  }
  return false;
}

std::optional<Verdict> Judge::of_ended_waits() const {
  if (waits_for_still_ranks()) return std::nullopt;
  std::vector<std::size_t> still;
  bool rests = false;
  for (const std::size_t i : tally_.elsewhere) {
    const bool did_not_run = states_[i].progress == Progress::kStill;
    if (did_not_run || has_own_reason(states_[i])) still.push_back(i);
    rests |= did_not_run;
  }
  std::string text = fmt::format("nothing is stuck: {} moved between the samples", moving());
  if (!still.empty())
    text += fmt::format("; {} {}", name_ranks(job_, {states_[still.front()].rank}),
                        describe_suspect(job_, states_[still.front()], reason_for(states_[still.front()])));
  text += still_waiting_words();
  Verdict verdict = make(VerdictStatus::kHealthy, text);
  // The last steps before a hang are steps, too: few ranks are seen in one, and the others wait already.
  rests |= few_moved();
  if (rests && may_sample_longer() && span_ms() < kLongerThanWaitsMs) verdict.doubt = Doubt::kRests;
  return verdict;
}

std::optional<Verdict> Judge::of_counting(bool passed_by) const {
  const std::vector<std::size_t>& counting = tally_.needed;
  if (counting.empty() || !std::all_of(counting.begin(), counting.end(),
                                       [&](std::size_t i) { return states_[i].counts && !has_own_reason(states_[i]); }))
    return std::nullopt;
  const RankState& s = states_[counting.front()];
  const bool one = counting.size() == 1;
  return make(
      VerdictStatus::kHealthy,
      fmt::format("nothing is stuck: {} {} than the others, which wait for {}, and {} on between the samples ({})",
                  name_ranks(job_, ranks_of(counting)),
                  passed_by ? (one ? "is further on" : "are further on")
                  : one     ? "is slower"
                            : "are slower",
                  one ? "it" : "them", one ? "counts" : "count", describe_suspect(job_, s, reason_for(s))));
}

std::optional<Verdict> Judge::of_duties_of_rank_0() const {
  if (tally_.waiting.empty() || tally_.elsewhere.size() != 1) return std::nullopt;
  const RankState& s = states_[tally_.elsewhere.front()];
  if (job_.ranks[s.rank].rank != 0 || tally_.compared <= 2 || (!s.travels && !s.counts) || has_own_reason(s))
    return std::nullopt;
  return make(VerdictStatus::kHealthy,
              fmt::format("nothing is stuck at this moment: rank 0 moves ({}), and {}; look again if "
                          "that takes longer than it should",
                          describe_suspect(job_, s, reason_for(s)), describe_waiting(job_, states_)));
}

std::optional<Divergence> Judge::divergence_from_those_it_passed(const RankState& s) const {
  constexpr std::size_t kMaxOperations = 64;
  for (std::size_t o = 0; o < std::min(facts_.operations.size(), kMaxOperations); ++o) {
    Divergence divergence = divergence_of(s, states_[facts_.operations[o].members.front()]);
    if (divergence.a_is_past()) return divergence;
  }
  return std::nullopt;
}

bool Judge::has_own_reason(const RankState& s) {
  return s.dead_child || known::is_held(s.doing.activity) || s.doing.activity == known::Activity::kDebugger;
}

bool Judge::runs(const RankState& s) const {
  if (s.progress != Progress::kUnknown) return s.active();
  const RankSnapshot& rank = job_.ranks[s.rank];
  if (rank.source == Source::kLive && !deciding_thread(job_, s).state) return true;  // as far as is known
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const known::Role role = facts_.roles[s.rank][t];
    if (rank.threads[t].state == 'R' &&
        (role == known::Role::kMain || role == known::Role::kAutograd || role == known::Role::kPython))
      return true;
  }
  return false;
}

bool Judge::gloo_is_moving() const {
  for (const RankState& s : states_)
    for (std::size_t t = 0; t < job_.ranks[s.rank].threads.size(); ++t)
      if ((facts_.roles[s.rank][t] == known::Role::kGlooLoop || facts_.roles[s.rank][t] == known::Role::kGlooWorker) &&
          job_.ranks[s.rank].threads[t].state == 'R')
        return true;
  return false;
}

double Judge::span_ms() const {
  double shortest = std::numeric_limits<double>::infinity();
  for (const std::size_t i : !tally_.elsewhere.empty() ? tally_.elsewhere
                             : !tally_.waiting.empty() ? tally_.waiting
                                                       : tally_.unknown) {
    const auto& motion = deciding_thread(job_, states_[i]).motion;
    shortest = std::min(shortest, motion ? motion->span_ms : 0);
  }
  return shortest;
}

bool Judge::loop_at_one_place() const {
  return std::all_of(tally_.elsewhere.begin(), tally_.elsewhere.end(), [&](std::size_t i) {
    // On a busy machine a thread that runs gets little processor time.
    return states_[i].progress == Progress::kRuns &&
           (states_[i].busy || deciding_thread(job_, states_[i]).state == 'R');
  });
}

}  // namespace rankstacks::analyzers
