// No rank is seen waiting for another, and few of them are at another place than the others.
#include "analyzers/judge.h"

#include <algorithm>

#include <fmt/format.h>

#include "analyzers/confidence.h"
#include "analyzers/divergence.h"
#include "analyzers/names.h"
#include "analyzers/operation.h"
#include "analyzers/place.h"
#include "analyzers/recorded_times.h"
#include "analyzers/verdict_words.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// "Comm::allreduce": a function of the program in which the rank is, and whose name is that of a collective; "" if it
// is in none, or not blocked there.
std::string own_collective(const JobSnapshot& job, const RankState& s) {
  const ThreadSnapshot& thread = deciding_thread(job, s);
  if (!thread.syscall || thread.state == 'R') return "";
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (!frame.function || (frame.kind == FrameKind::kPython && !is_users_code(frame))) continue;
    if (is_named_as_collective(*frame.function)) return frame.function->substr(0, frame.function->find('('));
  }
  return "";
}

}  // namespace

std::optional<Verdict> Judge::of_few_ahead(const std::vector<std::size_t>& few,
                                           const std::vector<std::size_t>& others) const {
  const auto all = [&](const std::vector<std::size_t>& indices, auto holds) {
    return std::all_of(indices.begin(), indices.end(), [&](std::size_t i) { return holds(states_[i]); });
  };
  const RankState& most = states_[others.front()];
  const bool look = all(others, [&](const RankState& s) {
    return s.progress == Progress::kRuns && !s.busy && polls_asleep(job_, deciding_thread(job_, s));
  });
  const bool ahead = all(few, [&](const RankState& s) {
    const Divergence apart = divergence_of(s, most);
    return !s.active() && apart.counter.empty() && apart.a_is_further_down &&
           branch_in_users_function(job_, deciding_thread(job_, s), deciding_thread(job_, most));
  });
  if (!look || !ahead || !all(tally_.elsewhere, [&](const RankState& s) { return is_silent(job_.ranks[s.rank]); }))
    return std::nullopt;
  constexpr double kGuessed = 0.5;  // that they look for what it has is in no frame
  std::vector<Suspect> suspects;
  for (const std::size_t i : few) suspects.push_back(suspect(states_[i], reason_for(states_[i]), bounded(kGuessed)));
  return culprits(std::move(suspects),
                  fmt::format("{} {} again and again for something ({}) that {} in the same function; by the Flight "
                              "Recorder {}",
                              name_ranks(job_, ranks_of(others)), others.size() == 1 ? "looks" : "look",
                              describe_place(job_, deciding_thread(job_, most)),
                              few.size() == 1 ? "it has passed" : "they have passed", describe_silence(job_)));
}

Verdict Judge::of_few_apart(const std::vector<std::size_t>& few, const std::vector<std::size_t>& others) const {
  const RankState &apart = states_[few.front()], &most = states_[others.front()];
  const std::string own = own_collective(job_, most);
  if (!own.empty() && std::all_of(few.begin(), few.end(), [&](std::size_t i) {
        return own_collective(job_, states_[i]).empty() && !states_[i].active();
      })) {
    constexpr double kByName = 0.45;
    std::vector<Suspect> suspects;
    for (const std::size_t i : few) suspects.push_back(suspect(states_[i], reason_for(states_[i]), bounded(kByName)));
    return culprits(std::move(suspects),
                    fmt::format("{} {} in {}, by its name a collective of the program's own",
                                name_ranks(job_, ranks_of(others)), others.size() == 1 ? "is" : "are", own));
  }
  if (auto passed = of_few_ahead(few, others)) return *passed;
  return undecided(fmt::format("{} {}: {} {}; of {} each {}; whether these wait for {} is not in their frames",
                               name_ranks(job_, ranks_of(few)), few.size() == 1 ? "differs" : "differ",
                               few.size() == 1 ? "it" : "each", describe_suspect(job_, apart, reason_for(apart)),
                               name_ranks(job_, ranks_of(others)), describe_suspect(job_, most, reason_for(most)),
                               few.size() == 1 ? "it" : "them"));
}

bool Judge::most_poll(const std::vector<std::size_t>& most) const {
  for (const std::size_t i : tally_.elsewhere) {
    const RankState& s = states_[i];
    if (!s.in_one_function || s.counts || s.left_wait) return false;
  }
  return std::none_of(most.begin(), most.end(), [&](std::size_t i) { return states_[i].busy; });
}

std::optional<Verdict> Judge::of_two_places(const std::vector<std::size_t>& a, const std::vector<std::size_t>& b,
                                            bool all_run, bool none_is_active) const {
  if (a.size() == b.size()) return std::nullopt;
  const std::vector<std::size_t>&few = a.size() < b.size() ? a : b, &most = a.size() < b.size() ? b : a;
  if (all_run && may_sample_longer() && most_poll(most)) {
    if (have_sampled_long()) return of_few_apart(few, most);
    Verdict open = make(VerdictStatus::kHealthy, "nothing is seen to be stuck: every rank runs");
    open.doubt = Doubt::kWorks;
    return open;
  }
  return !all_run && none_is_active ? std::optional(of_few_apart(few, most)) : std::nullopt;
}

}  // namespace rankstacks::analyzers
