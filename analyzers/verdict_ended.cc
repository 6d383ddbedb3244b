#include "analyzers/judge.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

#include "analyzers/communicator_errors.h"
#include "analyzers/coordinates.h"
#include "analyzers/deaths.h"
#include "analyzers/flight_records.h"
#include "analyzers/gone_ranks.h"
#include "analyzers/gpu_health.h"
#include "analyzers/place.h"
#include "analyzers/verdict_words.h"
#include "analyzers/watchdog_reporters.h"
#include "base/text.h"
#include "known/ordinary_exceptions.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// The confidence of what the state of a rank's GPUs alone shows; as confidence.cc has it of stacks, less for a dump.
double of_gpu_state(const RankSnapshot& rank, double confidence) {
  return bounded(confidence - (rank.source == Source::kDump ? 0.15 : 0));
}

}  // namespace

std::optional<Verdict> Judge::of_gpu_faults() const {
  std::vector<Suspect> suspects;
  std::vector<RankState> others;
  for (const RankState& s : states_) {
    if (s.gpu.exception && !s.unrelated)
      suspects.push_back(suspect(s, Reason::kCrashed, of_gpu_state(job_.ranks[s.rank], 0.90)));
    else others.push_back(s);
  }
  if (suspects.empty()) return std::nullopt;
  return culprits(std::move(suspects), describe_waiting(job_, others));
}

Verdict Judge::of_gpus_alone() const {
  std::vector<std::size_t> polling, others;
  for (const std::size_t i : tally_.gpu_only) (states_[i].gpu.in_collective() ? polling : others).push_back(i);
  std::vector<Suspect> suspects;
  std::string text;
  for (const std::size_t i : others) {
    const RankState& s = states_[i];
    const std::string state = s.gpu.activity == GpuActivity::kKernel ? "runs " + describe_kernel(*s.gpu.kernel)
                              : s.gpu.activity == GpuActivity::kIdle ? "is idle"
                                                                     : "runs a kernel without a name";
    if (text.empty()) text = fmt::format("the GPU of {} {}", name_ranks(job_, {s.rank}), state);
    if (s.gpu.activity == GpuActivity::kKernel && !polling.empty())
      suspects.push_back(suspect(s, Reason::kGpuWait, of_gpu_state(job_.ranks[s.rank], 0.65)));
  }
  std::string waiting;
  if (!polling.empty())
    waiting = fmt::format("{} {} in {} on the GPU", name_ranks(job_, ranks_of(polling)),
                          polling.size() == 1 ? "waits" : "wait", name_collectives(states_[polling.front()].gpu));
  if (!suspects.empty()) return culprits(std::move(suspects), waiting);
  if (!waiting.empty()) text += (text.empty() ? "" : " while ") + waiting;
  return undecided(text + "; only the state of GPUs is at hand: the stacks of their processes would show why");
}

Verdict Judge::of_crashed(const std::vector<std::size_t>& crashed) const {
  std::vector<Suspect> suspects;
  std::vector<RankState> others;
  for (const RankState& s : states_) {
    if (std::find(crashed.begin(), crashed.end(), s.rank) == crashed.end()) {
      others.push_back(s);
      continue;
    }
    const RankSnapshot& rank = job_.ranks[s.rank];
    Suspect one;
    one.rank = s.rank;
    one.reason = Reason::kCrashed;
    one.summary =
        fmt::format("{} {}", name_with_coordinates(job_, s.rank), describe_suspect(job_, s, Reason::kCrashed));
    one.advice = fails_on_gpu(rank) ? advice_for_gpu_failure(rank) : advice_for(Reason::kCrashed);
    one.confidence = bounded(tally_.compared > 1 ? 0.90 : 0.60);
    for (std::size_t t = 0; t < rank.threads.size(); ++t)
      if (rank.threads[t].tid == rank.signal->tid && !rank.threads[t].frames.empty())
        one.evidence.push_back({s.rank, t, deciding_frame(job_, rank.threads[t]).value_or(0)});
    suspects.push_back(std::move(one));
  }
  std::string waiting = describe_waiting(job_, others);
  if (waiting.empty()) waiting = describe_broken_connections();
  return culprits(std::move(suspects), waiting);
}

std::vector<std::size_t> Judge::first_to_crash() const {
  std::vector<std::size_t> crashed = crashed_ranks(job_, facts_.roles, facts_.missing);
  std::erase_if(crashed, [&](std::size_t r) {
    return std::any_of(own_watchdogs_.reporters.begin(), own_watchdogs_.reporters.end(),
                       [&](const OwnWatchdog& one) { return states_[one.state].rank == r; });
  });
  return crashed;
}

std::optional<Verdict> Judge::of_own_watchdogs() const {
  if (own_watchdogs_.reporters.empty() || own_watchdogs_.waits_are_known) return std::nullopt;
  std::vector<Suspect> suspects;
  for (const std::size_t i : own_watchdogs_.elsewhere)
    suspects.push_back(suspect(states_[i], reason_for(states_[i]), bounded(0.55)));
  std::vector<std::size_t> waiting;
  for (const RankState& s : states_)
    if (!s.unrelated && std::none_of(own_watchdogs_.elsewhere.begin(), own_watchdogs_.elsewhere.end(),
                                     [&](std::size_t i) { return states_[i].rank == s.rank; }))
      waiting.push_back(s.rank);
  const RankState& one = states_[own_watchdogs_.reporters.front().state];
  Verdict verdict = culprits(std::move(suspects), fmt::format("{} wait at one place ({})", name_ranks(job_, waiting),
                                                              describe_place(job_, deciding_thread(job_, one))));
  verdict.reference = kInferredFromStacks;
  return verdict;
}

bool Judge::is_ended_by_watchdog(std::size_t r) const {
  const RankSnapshot& rank = job_.ranks[r];
  for (std::size_t t = 0; rank.signal && t < rank.threads.size(); ++t)
    if (rank.threads[t].tid == rank.signal->tid) return is_watchdog_reporter(facts_.roles[r][t], rank.threads[t]);
  return false;
}

std::optional<ExceptionCause> Judge::blames_others(const RankState& s) const {
  const RankSnapshot& rank = job_.ranks[s.rank];
  const ThreadSnapshot* thread = nullptr;
  if (rank.signal) {
    if (is_sent_by_another(rank) || is_ended_by_watchdog(s.rank)) return std::nullopt;
    for (const ThreadSnapshot& one : rank.threads)
      if (one.tid == rank.signal->tid) thread = &one;
  } else if (s.readable && !s.waits()) {
    thread = leading_thread(job_, s);
  }
  return thread != nullptr ? cause_in_others(*thread) : std::nullopt;
}

bool Judge::ended_without_a_reason(const RankState& s) const {
  const RankSnapshot& rank = job_.ranks[s.rank];
  if (!rank.signal || rank.signal->number != SIGABRT || is_sent_by_another(rank) || rank.abort_message) return false;
  return std::any_of(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& thread) {
    const auto says_little = [](const Boxed<HandledException>& exception) {
      return !exception || known::is_lost_connection(exception->type);
    };
    const auto cxx_says_little = [](const Boxed<HandledCxxException>& handled) {
      return !handled || handled->exception.cause == ExceptionCause::kPeer;
    };
    return thread.tid == rank.signal->tid && !thread.exception && says_little(thread.handles) &&
           says_little(thread.raises) && cxx_says_little(thread.handles_cxx) && cxx_says_little(thread.raises_cxx);
  });
}

std::optional<Verdict> Judge::of_reports_of_others() const {
  std::vector<const RankState*> elsewhere;
  std::size_t blaming = 0, silent = 0, unclear = 0;
  bool all_ended = true, by_peer = false, by_time = false;
  for (const RankState& s : states_) {
    if (s.unrelated) continue;
    const auto cause = blames_others(s);
    if (ended_without_a_reason(s)) ++silent;
    if (cause) {
      ++blaming;
      (*cause == ExceptionCause::kPeer ? by_peer : by_time) = true;
      all_ended &= job_.ranks[s.rank].signal.has_value();
    } else if (s.elsewhere()) {
      elsewhere.push_back(&s);
    } else if (!s.waits()) {
      ++unclear;
    }
  }
  const std::vector<int>& missing = facts_.missing.certain;
  // Nobody says why it has aborted, and one that is not there has not even done that.
  if (silent == tally_.compared && silent > 1 && !missing.empty()) {
    Verdict verdict = of_missing(missing);
    for (Suspect& one : verdict.suspects) one.confidence = bounded(0.50);
    return verdict;
  }
  if (blaming == 0 || unclear > 0) return std::nullopt;
  if (elsewhere.empty() || (by_peer && !all_ended)) {
    // A connection that breaks shows that the other end has gone. One that lives may handle the loss of any connection.
    if (!missing.empty() && (by_peer || elsewhere.empty())) return of_missing(missing);
    return std::nullopt;
  }
  // These have let the others wait: they have not come to where the time ran out.
  const bool get_on = std::any_of(elsewhere.begin(), elsewhere.end(), [](const RankState* s) { return s->moves(); });
  if (!missing.empty() || get_on || elsewhere.size() * 2 > tally_.compared || !(by_time || all_ended))
    return std::nullopt;
  std::vector<Suspect> suspects;
  for (const RankState* s : elsewhere) suspects.push_back(suspect(*s, reason_for(*s), bounded(0.70)));
  std::string waiting = describe_broken_connections();
  const std::string still = describe_waiting(job_, states_);
  if (!still.empty()) waiting += ", and " + still;
  return culprits(std::move(suspects), waiting);
}

std::string Judge::describe_broken_connections() const {
  std::vector<std::size_t> broken, late;
  for (const RankState& s : states_)
    if (const auto cause = blames_others(s)) (*cause == ExceptionCause::kPeer ? broken : late).push_back(s.rank);
  std::string text;
  if (!broken.empty())
    text = fmt::format("{} lost {} connections", name_ranks(job_, broken), broken.size() == 1 ? "its" : "their");
  if (!late.empty()) text += fmt::format("{}{} timed out", text.empty() ? "" : ", ", name_ranks(job_, late));
  return text;
}

std::optional<Verdict> Judge::of_broken_connections() const {
  const std::string broken = describe_broken_connections();
  const bool all_ended = std::all_of(states_.begin(), states_.end(), [&](const RankState& s) {
    return job_.ranks[s.rank].signal.has_value() && !is_sent_by_another(job_.ranks[s.rank]);
  });
  if (broken.empty() || !all_ended) return std::nullopt;
  if (explain_by_flight_records(job_, states_, facts_.roles)) return std::nullopt;  // what they waited in is known
  const std::vector<int>& missing = facts_.missing.certain;
  if (!missing.empty()) return of_missing(missing);
  return undecided(broken +
                   " and ended for that: which rank was the first to end is not in these cores; the launcher's "
                   "log says it, or a core of that rank");
}

std::optional<Verdict> Judge::of_gpu_failures() const {
  const std::vector<Evidence> failures = find_gpu_failures(job_);
  std::vector<Suspect> suspects;
  std::vector<RankState> others;
  for (const RankState& s : states_) {
    Suspect one;
    std::copy_if(failures.begin(), failures.end(), std::back_inserter(one.evidence),
                 [&](const Evidence& e) { return e.rank == s.rank; });
    if (one.evidence.empty() || s.unrelated) {
      others.push_back(s);
      continue;
    }
    one.rank = s.rank;
    one.reason = Reason::kException;
    const ThreadSnapshot& thread = job_.ranks[s.rank].threads[one.evidence.front().thread];
    one.summary = fmt::format("{} {}", name_with_coordinates(job_, s.rank), describe_gpu_failure(thread));
    one.advice = advice_for_gpu_failure(job_.ranks[s.rank]);
    one.confidence = bounded(tally_.compared > 1 ? 0.90 : 0.60);
    suspects.push_back(std::move(one));
  }
  if (suspects.empty() || (tally_.compared > 1 && suspects.size() == tally_.compared)) return std::nullopt;
  return culprits(std::move(suspects), describe_waiting(job_, others));
}

bool Judge::fails_on_gpu(const RankSnapshot& rank) {
  return std::any_of(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& thread) {
    return thread.tid == rank.signal->tid && thread.exception && thread.exception->cause == ExceptionCause::kOwnGpu;
  });
}

std::vector<std::size_t> Judge::needed_of_ended() const {
  const bool some_unseen = std::any_of(facts_.operations.begin(), facts_.operations.end(),
                                       [](const PendingOperation& o) { return !o.unseen.empty(); });
  std::vector<std::size_t> needed;
  for (const std::size_t r : tally_.ended)
    if (facts_.waits.is_needed(r) || (!job_.ranks[r].rank && some_unseen)) needed.push_back(r);
  return needed;
}

std::vector<Suspect> Judge::suspects_of_ended(const std::vector<std::size_t>& ended) const {
  std::vector<Suspect> suspects;
  for (const std::size_t r : ended) {
    Suspect one;
    one.rank = r;
    one.reason = Reason::kMissing;
    one.summary = fmt::format("rank {} has ended", rank_label(job_.ranks[r]));
    one.advice = advice_for(Reason::kMissing);
    one.confidence = bounded(0.70);
    suspects.push_back(std::move(one));
  }
  return suspects;
}

Verdict Judge::of_ended(const std::vector<std::size_t>& ended) const {
  Verdict verdict =
      make(VerdictStatus::kCulprit,
           fmt::format("{} {} ended while {}{}", name_ranks(job_, ended), ended.size() == 1 ? "has" : "have",
                       describe_waiting(job_, states_), describe_kernel_kills(job_)));
  verdict.suspects = suspects_of_ended(ended);
  return verdict;
}

std::string Judge::describe_who_is_left() const {
  std::string left = describe_broken_connections();
  if (const std::string waiting = describe_waiting(job_, states_); !waiting.empty())
    left += (left.empty() ? "" : ", and ") + waiting;
  return left.empty() ? "the others have ended" : left;
}

Verdict Judge::of_missing(const std::vector<int>& missing) const { return of_missing(missing, describe_who_is_left()); }

Verdict Judge::of_missing(const std::vector<int>& missing, std::string_view others) const {
  std::vector<Suspect> suspects;
  constexpr std::size_t kMaxSuspects = 64;
  bool all_lost = !missing.empty();
  for (const int number : missing) {
    if (suspects.size() == kMaxSuspects) break;
    Suspect one;
    one.rank = SIZE_MAX;
    one.missing_rank = number;
    one.reason = Reason::kMissing;
    one.summary = fmt::format("rank {} is not there", number);
    one.advice = advice_for(Reason::kMissing);
    const bool lost = is_lost_peer(job_, number);
    all_lost &= lost;
    one.confidence = bounded(lost ? 0.80 : 0.70);
    suspects.push_back(std::move(one));
  }
  std::string why = "ended, never started, or not looked at";
  if (!tally_.ended.empty())
    why = fmt::format("{} {} ended", pids_of(tally_.ended), tally_.ended.size() == 1 ? "has" : "have");
  else if (all_lost) why = "ended: NCCL has lost a connection, and has no answer from there";
  Verdict verdict =
      make(VerdictStatus::kCulprit,
           fmt::format("rank{} {} {} not there ({}{}) while {}", plural(missing.size()), format_numbers(missing),
                       missing.size() == 1 ? "is" : "are", why, describe_kernel_kills(job_), others));
  verdict.suspects = std::move(suspects);
  return verdict;
}

}  // namespace rankstacks::analyzers
