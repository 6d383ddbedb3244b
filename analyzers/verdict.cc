// Who holds up the job, by rule:
//
//   1. A fatal signal in a core that the others do not share: `crashed`.
//      So is what a kernel ran into on a GPU, before it. What GPUs run decides where ranks stand (gpu_waits.h).
//   2. Waits that end between two looks, or ranks that are waited for and whose loop counters go on: the job moves, `healthy`; unless a wait that
//      stands still needs, by its group or peer, a rank that stands still elsewhere.
//   3. Some ranks wait and others do something else: those others that somebody waits for (waits.h), each with the reason its frames tell. Ranks
//      that wait are never suspects here, nor are ranks whose frames do not tell. Rank 0 alone at work that moves is doing its duty: `healthy`.
//   4. All wait: alike -> symmetric; ranks missing by the world size -> those; else by what makes the cycle: sends and receives without a
//      counterpart, groups in another order, another collective, the same code at an earlier step. The smaller side, or both when equal.
//      Where the pipeline's stages are told (coordinates.h) and no group is known, sides are compared within a stage.
//   5. Nobody waits: stopped, debugger and worker-dead are reasons of their own; all running or moving -> healthy; all still at one place ->
//      symmetric; else undecided. All running at one place at every look: healthy with a doubt, and symmetric once that lasted longer than steps do.
//   A collective that one rank calls on its way out of the interpreter, where the others need it elsewhere, is that rank's end: `exception`.
//
// Whatever it is: a watchdog that ends its process is named as what it is, the messenger (messengers.h), with what it carries.
// One that carries an error of its own process's GPU work is none: its rank has `crashed`, or, while it lives, is on its way
// to its end by that `exception`, which counts after 1.
//
// Confidence: 0.90 where a frame or the state told, 0.75 where the system call or a lock did, 0.60 for the program's own code; 0.70 for a
// missing rank, 0.65 for a mismatch (0.80 where groups or peers are known, 0.40 between equal sides); by what its GPU runs 0.85 for a kernel,
// 0.65 for none, 0.45 where its utilisation alone tells; then -0.15 if the suspect was running or moving, +0.05 if several looks saw nothing of
// it move, -0.20 if some rank could not be judged, -0.10 if the others wait for their GPU only,
// -0.25 if that the others wait is concluded from there being more of them alike, -0.10 if more than half of the ranks are suspects, +0.05 if it
// is the only suspect. Bounds: 0.10 and 0.97.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/analysis.h"
#include "analyzers/coordinates.h"
#include "analyzers/deadlock.h"
#include "analyzers/gpu_health.h"
#include "analyzers/messengers.h"
#include "analyzers/parting.h"
#include "analyzers/standing.h"
#include "analyzers/verdict_words.h"
#include "analyzers/waits.h"
#include "model/rank_set.h"

namespace rankstacks {
namespace {

struct Tally {
  std::vector<std::size_t> waiting, elsewhere, unknown;    // indices into the standings
  std::vector<std::size_t> needed;                         // those elsewhere that somebody who waits needs
  std::vector<std::size_t> ended, failed, partial;         // indices into the ranks; ended: zombies and processes that are gone
  std::vector<std::size_t> strangers;                      // indices into the ranks
  std::vector<std::size_t> gpu_only;                       // indices into the standings
  bool waits_for_gpu_only = true;
  bool inferred = false;                                   // that some wait is concluded from what most do
};

const ThreadSnapshot& thread_that_told(const JobSnapshot& job, const Standing& s) { return job.ranks[s.rank].threads[s.doing.thread]; }

Reason reason_for(const Standing& s) { return s.dead_child ? Reason::kWorkerDead : reason_of(s.doing.activity); }

std::vector<Evidence> evidence_for(const JobSnapshot& job, const Standing& s) {
  std::vector<Evidence> evidence;
  if (s.told_by_child) {
    const ThreadSnapshot& worker = job.ranks[*s.told_by_child].threads[s.child_thread];
    evidence.push_back({*s.told_by_child, s.child_thread, telling_frame(job, worker).value_or(0)});
  }
  const ThreadSnapshot& thread = thread_that_told(job, s);
  const std::size_t place = s.doing.activity == Activity::kDataLoading ? telling_frame(job, thread).value_or(s.doing.frame) : s.doing.frame;
  evidence.push_back({s.rank, s.doing.thread, place});
  // Who holds the lock explains who waits for it.
  const auto& threads = job.ranks[s.rank].threads;
  if (s.doing.activity == Activity::kNativeLock && thread.lock_owner)
    for (std::size_t t = 0; t < threads.size(); ++t)
      if (threads[t].tid == *thread.lock_owner && t != s.doing.thread && !threads[t].frames.empty()) evidence.push_back({s.rank, t, telling_frame(job, threads[t]).value_or(0)});
  return evidence;
}

double base_confidence(const Standing& s) {
  if (s.told_by_utilization) return 0.45;
  if (s.told_by_gpu) return s.gpu.activity == GpuActivity::kKernel ? 0.85 : 0.65;
  if (s.dead_child || s.doing.by_frame) return 0.90;
  return s.doing.activity == Activity::kUserCode ? 0.60 : 0.75;
}

double bounded(double confidence) { return std::round(std::clamp(confidence, 0.10, 0.97) * 100) / 100; }

double confidence_for(const JobSnapshot& job, const Standing& s, const Tally& tally, std::size_t ranks, double base) {
  double confidence = base;
  // A CPU that waits for its GPU may spin.
  const bool spins = s.told_by_gpu && !s.moves();
  if (!spins && (s.pace == Pace::kUnknown ? thread_that_told(job, s).state == 'R' : s.active())) confidence -= 0.15;
  if (s.pace == Pace::kStill) confidence += 0.05;
  if (tally.inferred) confidence -= 0.25;
  if (!tally.unknown.empty() || !tally.failed.empty() || !tally.gpu_only.empty()) confidence -= 0.20;
  if (!tally.waiting.empty() && tally.waits_for_gpu_only) confidence -= 0.10;
  if (tally.elsewhere.size() * 2 > ranks) confidence -= 0.10;
  if (tally.elsewhere.size() == 1) confidence += 0.05;
  return bounded(confidence);
}

class Judge {
 public:
  Judge(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, const std::vector<Standing>& standings, const Waits& waits)
      : job_(job), roles_(roles), standings_(standings), waits_(waits), messengers_(find_messengers(job, roles)) {
    for (std::size_t i = 0; i < standings_.size(); ++i) {
      const Standing& s = standings_[i];
      if (s.stranger) {
        tally_.strangers.push_back(s.rank);
        continue;
      }
      ++compared_;
      if (s.gpu_only)
        tally_.gpu_only.push_back(i);
      else if (!s.readable)
        (s.ended ? tally_.ended : tally_.failed).push_back(s.rank);
      else if (s.unknown())
        tally_.unknown.push_back(i);
      else
        (s.waits() ? tally_.waiting : tally_.elsewhere).push_back(i);
      if (s.readable && job.ranks[s.rank].status == Status::kPartial) tally_.partial.push_back(s.rank);
      if (s.waits() && !s.gpu_wait_may_be_collective) tally_.waits_for_gpu_only = false;
      tally_.inferred |= s.inferred;
      if (s.readable) several_looks_ &= s.pace != Pace::kUnknown;
    }
    std::copy_if(tally_.elsewhere.begin(), tally_.elsewhere.end(), std::back_inserter(tally_.needed), [&](std::size_t i) { return waits_.is_needed(i); });
  }

  Verdict verdict() {
    if (compared_ == 0) return undecided("there is no rank to look at");
    if (tally_.ended.size() == compared_) return undecided("every rank has ended");
    if (tally_.failed.size() + tally_.ended.size() == compared_) return undecided("no rank could be read");
    if (const std::string twice = numbers_seen_twice(); !twice.empty())
      return undecided(fmt::format("{} there more than once: these are processes of several jobs, or of one job at several times; name those of one (--pids, or its cores)", twice));
    if (auto faults = of_gpu_faults()) return *faults;
    if (const auto crashed = crashed_ranks(job_, roles_); !crashed.empty()) return of_crashed(crashed);
    if (auto failed = of_gpu_failures()) return *failed;
    if (tally_.gpu_only.size() + tally_.failed.size() + tally_.ended.size() == compared_) return of_gpus_alone();
    if (several_looks_)
      if (auto healthy = of_progress()) return *healthy;
    if (!tally_.needed.empty()) return of_mixed();
    if (!tally_.waiting.empty()) return of_waiting();
    return of_nobody_waits();
  }

 private:
  // "rank 0 is", "ranks 0-3 are": who waits for whom cannot be told among processes of two jobs.
  std::string numbers_seen_twice() const {
    std::set<int> seen, twice;
    for (const Standing& s : standings_)
      if (const auto number = job_.ranks[s.rank].rank; number && !s.ended && !s.stranger && !seen.insert(*number).second) twice.insert(*number);
    if (twice.empty()) return "";
    return fmt::format("{} {} {}", twice.size() == 1 ? "rank" : "ranks", format_numbers({twice.begin(), twice.end()}), twice.size() == 1 ? "is" : "are");
  }

  Verdict make(VerdictStatus status, std::string summary) const {
    if (!tally_.strangers.empty())
      summary += fmt::format("; {} {} not of this job", pids_of(tally_.strangers), tally_.strangers.size() == 1 ? "is" : "are");
    if (!tally_.failed.empty() && tally_.failed.size() < compared_) summary += fmt::format("; {} could not be read", name_ranks(job_, tally_.failed));
    if (!tally_.gpu_only.empty() && tally_.gpu_only.size() < compared_) summary += fmt::format("; of {} only the GPU's state is at hand", name_ranks(job_, ranks_of(tally_.gpu_only)));
    if (!tally_.partial.empty()) summary += fmt::format("; {} {} read only in part", name_ranks(job_, tally_.partial), tally_.partial.size() == 1 ? "was" : "were");
    if (const std::string told = describe_messengers(job_, messengers_); !told.empty()) summary += "; " + told;
    Verdict verdict;
    verdict.status = status;
    verdict.summary = std::move(summary);
    return verdict;
  }
  Verdict undecided(std::string summary) const { return make(VerdictStatus::kUndecided, std::move(summary)); }

  std::vector<std::size_t> ranks_of(const std::vector<std::size_t>& standings) const {
    std::vector<std::size_t> ranks;
    for (const std::size_t i : standings) ranks.push_back(standings_[i].rank);
    return ranks;
  }

  // The suspects' sentence: the first in full, the others by name.
  std::string sentence(const std::vector<Suspect>& suspects, const std::string& waiting) const {
    std::vector<std::size_t> like_first, others;
    for (const Suspect& s : suspects) (s.reason == suspects.front().reason ? like_first : others).push_back(s.rank);
    std::string text = suspects.front().summary;
    if (!waiting.empty()) text += " while " + waiting;
    like_first.erase(like_first.begin());
    if (!like_first.empty()) {
      text += fmt::format("; {} likewise", name_ranks(job_, like_first));
      like_first.push_back(suspects.front().rank);
      if (const std::string stages = whole_stages(job_, like_first); !stages.empty()) text += fmt::format(" ({})", stages);
    }
    std::map<Reason, std::vector<std::size_t>> by_reason;
    for (const Suspect& s : suspects)
      if (s.reason != suspects.front().reason) by_reason[s.reason].push_back(s.rank);
    for (const auto& [reason, ranks] : by_reason) text += fmt::format("; also {} ({})", name_ranks(job_, ranks), to_string(reason));
    return text;
  }

  Suspect suspect(const Standing& s, Reason reason, double confidence) const {
    Suspect one;
    one.rank = s.rank;
    one.summary = fmt::format("{} {}", name_with_coordinates(job_, s.rank), describe_suspect(job_, s, reason));
    one.advice = advice_for(job_, s, reason);
    one.confidence = confidence;
    if (!job_.ranks[s.rank].threads.empty()) one.evidence = evidence_for(job_, s);
    std::copy_if(messengers_.begin(), messengers_.end(), std::back_inserter(one.evidence), [&](const Evidence& m) { return m.rank == s.rank; });
    one.reason = reason;
    return one;
  }

  Verdict culprits(std::vector<Suspect> suspects, const std::string& waiting) const {
    std::stable_sort(suspects.begin(), suspects.end(), [](const Suspect& a, const Suspect& b) { return a.confidence > b.confidence; });
    Verdict verdict = make(VerdictStatus::kCulprit, sentence(suspects, waiting));
    verdict.suspects = std::move(suspects);
    return verdict;
  }

  // What a kernel of a rank ran into. Its process's own end, and the waits of the others, follow from that.
  std::optional<Verdict> of_gpu_faults() const {
    std::vector<Suspect> suspects;
    std::vector<Standing> others;
    for (const Standing& s : standings_) {
      if (s.gpu.exception && !s.stranger) suspects.push_back(suspect(s, Reason::kCrashed, bounded(0.90)));
      else others.push_back(s);
    }
    if (suspects.empty()) return std::nullopt;
    return culprits(std::move(suspects), describe_waiting(job_, others));
  }

  // GPU cores without the cores of their processes: which kernels run is all that is known.
  Verdict of_gpus_alone() const {
    std::vector<std::size_t> polling, others;
    for (const std::size_t i : tally_.gpu_only) (standings_[i].gpu.in_collective() ? polling : others).push_back(i);
    std::vector<Suspect> suspects;
    std::string text;
    for (const std::size_t i : others) {
      const Standing& s = standings_[i];
      const std::string state = s.gpu.activity == GpuActivity::kKernel ? "runs " + describe_kernel(*s.gpu.kernel) : s.gpu.activity == GpuActivity::kIdle ? "is idle" : "runs a kernel without a name";
      if (text.empty()) text = fmt::format("the GPU of {} {}", name_ranks(job_, {s.rank}), state);
      if (s.gpu.activity == GpuActivity::kKernel && !polling.empty()) suspects.push_back(suspect(s, Reason::kGpuWait, bounded(0.65)));
    }
    std::string waiting;
    if (!polling.empty())
      waiting = fmt::format("{} {} in {} on the GPU", name_ranks(job_, ranks_of(polling)), polling.size() == 1 ? "waits" : "wait", name_collectives(standings_[polling.front()].gpu));
    if (!suspects.empty()) return culprits(std::move(suspects), waiting);
    if (!waiting.empty()) text += (text.empty() ? "" : " while ") + waiting;
    return undecided(text + "; only the state of GPUs is at hand: the stacks of their processes would tell why");
  }

  Verdict of_crashed(const std::vector<std::size_t>& crashed) const {
    std::vector<Suspect> suspects;
    std::vector<Standing> others;
    for (const Standing& s : standings_) {
      if (std::find(crashed.begin(), crashed.end(), s.rank) == crashed.end()) {
        others.push_back(s);
        continue;
      }
      const RankSnapshot& rank = job_.ranks[s.rank];
      Suspect one;
      one.rank = s.rank;
      one.reason = Reason::kCrashed;
      one.summary = fmt::format("{} {}", name_with_coordinates(job_, s.rank), describe_suspect(job_, s, Reason::kCrashed));
      one.advice = fails_on_gpu(rank) ? advice_for_gpu_failure() : advice_for(Reason::kCrashed);
      one.confidence = bounded(compared_ > 1 ? 0.90 : 0.60);
      for (std::size_t t = 0; t < rank.threads.size(); ++t)
        if (rank.threads[t].tid == rank.signal->tid && !rank.threads[t].frames.empty())
          one.evidence.push_back({s.rank, t, telling_frame(job_, rank.threads[t]).value_or(0)});
      suspects.push_back(std::move(one));
    }
    return culprits(std::move(suspects), describe_waiting(job_, others));
  }

  // A rank that lives, or whose core was taken while it did, on its way to its end because its own GPU work failed.
  // What all ranks share tells nobody apart.
  std::optional<Verdict> of_gpu_failures() const {
    const std::vector<Evidence> failures = find_gpu_failures(job_);
    std::vector<Suspect> suspects;
    std::vector<Standing> others;
    for (const Standing& s : standings_) {
      Suspect one;
      std::copy_if(failures.begin(), failures.end(), std::back_inserter(one.evidence),
                   [&](const Evidence& e) { return e.rank == s.rank; });
      if (one.evidence.empty() || s.stranger) {
        others.push_back(s);
        continue;
      }
      one.rank = s.rank;
      one.reason = Reason::kException;
      const ThreadSnapshot& thread = job_.ranks[s.rank].threads[one.evidence.front().thread];
      one.summary = fmt::format("{} {}", name_with_coordinates(job_, s.rank), describe_gpu_failure(thread));
      one.advice = advice_for_gpu_failure();
      one.confidence = bounded(compared_ > 1 ? 0.90 : 0.60);
      suspects.push_back(std::move(one));
    }
    if (suspects.empty() || (compared_ > 1 && suspects.size() == compared_)) return std::nullopt;
    return culprits(std::move(suspects), describe_waiting(job_, others));
  }

  // The thread that got the rank's signal dies of an error of the rank's own GPU work.
  static bool fails_on_gpu(const RankSnapshot& rank) {
    return std::any_of(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& thread) {
      return thread.tid == rank.signal->tid && thread.exception && thread.exception->cause == ExceptionCause::kOwnGpu;
    });
  }

  // "ranks 0-3": those that moved between the looks.
  std::string moving() const {
    std::vector<std::size_t> ranks;
    for (const Standing& s : standings_)
      if (!s.stranger && s.readable && s.moves()) ranks.push_back(s.rank);
    return name_ranks(job_, ranks);
  }

  // The job moves: waits end between the looks. Nothing: it does not, or a part of it does not.
  std::optional<Verdict> of_progress() const {
    const auto moves = [&](std::size_t i) { return standings_[i].moves(); };
    const bool some_wait_ended = std::any_of(tally_.waiting.begin(), tally_.waiting.end(), moves) ||
                                 std::any_of(tally_.elsewhere.begin(), tally_.elsewhere.end(), [&](std::size_t i) { return standings_[i].left_wait; });
    if (some_wait_ended) {
      // A wait that stands still, and that is known to be for a rank that stands still too.
      for (const WaitClass& waiting : waits_.classes()) {
        if (!waiting.certain || std::any_of(waiting.members.begin(), waiting.members.end(), moves)) continue;
        if (std::any_of(waiting.elsewhere.begin(), waiting.elsewhere.end(), [&](std::size_t i) { return !standings_[i].active(); }) || waiting.in_cycle) return std::nullopt;
      }
      std::vector<std::size_t> still;
      for (const std::size_t i : tally_.elsewhere)
        if (has_own_reason(standings_[i])) still.push_back(i);
      std::string text = fmt::format("nothing is stuck: {} moved between the looks", moving());
      if (!still.empty()) text += fmt::format("; {} {}", name_ranks(job_, {standings_[still.front()].rank}), describe_suspect(job_, standings_[still.front()], reason_for(standings_[still.front()])));
      return make(VerdictStatus::kHealthy, text);
    }
    // Those that are waited for count on: slower than the others, and not stuck.
    const std::vector<std::size_t>& counting = tally_.needed;
    if (!counting.empty() && tally_.unknown.empty() && tally_.failed.empty() &&
        std::all_of(counting.begin(), counting.end(), [&](std::size_t i) { return standings_[i].counts && !has_own_reason(standings_[i]); })) {
      const Standing& s = standings_[counting.front()];
      return make(VerdictStatus::kHealthy, fmt::format("nothing is stuck: {} {} slower than the others, which wait for {}, and {} on between the looks ({})", name_ranks(job_, ranks_of(counting)),
                                         counting.size() == 1 ? "is" : "are", counting.size() == 1 ? "it" : "them", counting.size() == 1 ? "counts" : "count", describe_suspect(job_, s, reason_for(s))));
    }
    // Rank 0 evaluates, logs or saves while the others wait for it: its duty, as long as it moves.
    if (!tally_.waiting.empty() && tally_.elsewhere.size() == 1 && tally_.unknown.empty() && tally_.failed.empty()) {
      const Standing& s = standings_[tally_.elsewhere.front()];
      if (job_.ranks[s.rank].rank == 0 && compared_ > 2 && (s.travels || s.counts) && !has_own_reason(s))
        return make(VerdictStatus::kHealthy, fmt::format("nothing is stuck at this moment: rank 0 moves ({}), and {}; look again if that takes longer than it should", describe_suspect(job_, s, reason_for(s)),
                                           describe_waiting(job_, standings_)));
    }
    return std::nullopt;
  }

  static bool has_own_reason(const Standing& s) {
    return s.dead_child || s.doing.activity == Activity::kStopped || s.doing.activity == Activity::kDebugger;
  }

  // It is on a processor, or wants one: its main thread, or one that works for it.
  bool runs(const Standing& s) const {
    if (s.pace != Pace::kUnknown) return s.active();
    const RankSnapshot& rank = job_.ranks[s.rank];
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      const Role role = roles_[s.rank][t];
      if (rank.threads[t].state == 'R' && (role == Role::kMain || role == Role::kAutograd || role == Role::kPython)) return true;
    }
    return false;
  }

  std::string too_few_looks() const { return several_looks_ ? "these looks cannot tell a hang from progress; look more often, or for longer (--samples, --interval)" : "one look cannot tell a hang from progress; look again in a few seconds"; }

  Verdict of_mixed() const {
    const std::vector<std::size_t>& needed = tally_.needed;
    // Ranks that have arrived early at a collective are everyday skew as long as no fewer are running their own code.
    const bool all_running = std::all_of(needed.begin(), needed.end(), [&](std::size_t i) {
      const Standing& s = standings_[i];
      const bool at_work = s.doing.activity == Activity::kUserCode || s.doing.activity == Activity::kDataLoading;
      return at_work && !s.told_by_child && runs(s);
    });
    if (all_running && needed.size() * 2 >= compared_)
      return undecided(fmt::format("{} ranks are running their own code, and {}: {}",
                                   needed.size() * 2 > compared_ ? "most" : "half of the", describe_waiting(job_, standings_), too_few_looks()));
    // The stages of a pipeline take turns: one that is at work, all of it, is not late because others wait for it.
    if (const std::string stages = whole_stages(job_, ranks_of(needed)); all_running && !stages.empty())
      return undecided(fmt::format("{} are running their own code, and {}, as the stages of a pipeline do: {}", stages, describe_waiting(job_, standings_), too_few_looks()));
    std::vector<Suspect> suspects = ended_ranks();
    for (const std::size_t i : needed) {
      const Standing& s = standings_[i];
      Reason reason = reason_for(s);
      // It moves, and those that wait for it are further on in the same code.
      if (s.doing.activity == Activity::kUserCode && s.moves() && is_behind_all(s)) reason = Reason::kBehind;
      suspects.push_back(suspect(s, reason, confidence_for(job_, s, tally_, compared_, base_confidence(s))));
    }
    Verdict verdict = culprits(std::move(suspects), describe_waiting(job_, standings_));
    verdict.reference = tally_.inferred ? kInferredFromStacks : waits_.all_certain() ? kFromGroups : kAllRanks;
    return verdict;
  }

  bool is_behind_all(const Standing& s) const {
    return std::all_of(tally_.waiting.begin(), tally_.waiting.end(), [&](std::size_t i) { return parting_of(s, standings_[i]).a_is_behind(); });
  }

  std::string pids_of(const std::vector<std::size_t>& ranks) const {
    constexpr std::size_t kMost = 8;
    std::string text = ranks.size() == 1 ? "pid" : "pids";
    for (std::size_t i = 0; i < ranks.size() && i < kMost; ++i) text += fmt::format("{}{}", i == 0 ? " " : ",", job_.ranks[ranks[i]].pid);
    return ranks.size() > kMost ? fmt::format("{} and {} more", text, ranks.size() - kMost) : text;
  }

  // Ranks that have ended while others wait. A zombie has no environment any more: which number it had only the world size may tell.
  std::vector<Suspect> ended_ranks() const {
    std::vector<Suspect> suspects;
    for (const std::size_t r : tally_.ended) {
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

  Verdict of_ended() const {
    Verdict verdict = make(VerdictStatus::kCulprit, fmt::format("{} {} ended while {}", name_ranks(job_, tally_.ended), tally_.ended.size() == 1 ? "has" : "have", describe_waiting(job_, standings_)));
    verdict.suspects = ended_ranks();
    return verdict;
  }

  Verdict of_missing(const std::vector<int>& missing) const {
    std::vector<Suspect> suspects;
    constexpr std::size_t kMostSuspects = 64;
    for (const int number : missing) {
      if (suspects.size() == kMostSuspects) break;
      Suspect one;
      one.rank = SIZE_MAX;
      one.missing_rank = number;
      one.reason = Reason::kMissing;
      one.summary = fmt::format("rank {} is not there", number);
      one.advice = advice_for(Reason::kMissing);
      one.confidence = bounded(0.70);
      suspects.push_back(std::move(one));
    }
    const std::string why = tally_.ended.empty() ? "ended, never started, or not looked at" : fmt::format("{} {} ended", pids_of(tally_.ended), tally_.ended.size() == 1 ? "has" : "have");
    Verdict verdict = make(VerdictStatus::kCulprit, fmt::format("{} {} {} not there ({}) while {}", missing.size() == 1 ? "rank" : "ranks", format_numbers(missing), missing.size() == 1 ? "is" : "are", why,
                                                  describe_waiting(job_, standings_)));
    verdict.suspects = std::move(suspects);
    return verdict;
  }

  // In a hang gloo's threads sleep. (NCCL's and MPI's spin, moving or not.)
  bool gloo_is_moving() const {
    for (const Standing& s : standings_)
      for (std::size_t t = 0; t < job_.ranks[s.rank].threads.size(); ++t)
        if ((roles_[s.rank][t] == Role::kGlooLoop || roles_[s.rank][t] == Role::kGlooWorker) && job_.ranks[s.rank].threads[t].state == 'R') return true;
    return false;
  }

  Verdict of_waiting() const {
    const std::string waiting = describe_waiting(job_, standings_);
    if (!tally_.unknown.empty()) return undecided(fmt::format("{}; the frames of {} do not tell what it does", waiting, name_ranks(job_, ranks_of(tally_.unknown))));
    if (!tally_.failed.empty()) return undecided(fmt::format("{}; what is missing is the rank that could not be read", waiting));
    const MissingRanks missing = missing_ranks(job_);
    if (!missing.certain.empty()) {
      // The ranks have met already, and only cores of some are at hand: that a core is not there says nothing of its rank.
      const bool have_met = std::all_of(tally_.waiting.begin(), tally_.waiting.end(), [&](std::size_t i) {
        const Doing& doing = standings_[i].doing;
        return doing.activity != Activity::kStoreWait && doing.operation.kind != OperationKind::kSetUp && job_.ranks[standings_[i].rank].source == Source::kCore;
      });
      if (have_met) return undecided(fmt::format("{}; the cores of ranks {} are not among these: where those stand would tell", waiting, format_numbers(missing.certain)));
      return of_missing(missing.certain);
    }
    if (!tally_.ended.empty()) return of_ended();
    if (!missing.alive.empty())
      return undecided(fmt::format("{}; ranks {} run on this machine and were not looked at: add their processes to --pids, or use --job", waiting, format_numbers(missing.alive)));
    if (!missing.elsewhere.empty())
      return undecided(fmt::format("{}; ranks {} were not looked at: look at them too, on their machines, and merge the reports", waiting, format_numbers(missing.elsewhere)));
    if (compared_ == 1) return undecided(fmt::format("{}; there is no other rank to compare with", waiting));

    const auto deadlock = explain_deadlock(job_, standings_, waits_);
    if (!deadlock && !several_looks_ && gloo_is_moving())
      return undecided(fmt::format("{} at the same place, and their gloo threads are at work: {}", waiting, too_few_looks()));
    if (!deadlock && told_by_gpus()) {
      const std::string differences = describe_gpu_differences(job_);
      return make(VerdictStatus::kSymmetric, fmt::format("no rank differs: {} at the same place, and each GPU runs {}, waiting for the others; the cause lies below these frames: {}", waiting,
                                           name_collectives(standings_[tally_.waiting.front()].gpu),
                                           differences.empty() ? "the network (NICs, switches), NVLink, or a call that differs in size or group" : differences));
    }
    if (!deadlock) {
      Verdict symmetric = make(VerdictStatus::kSymmetric, fmt::format("no rank differs: {} at the same place; the cause lies below these frames (network, GPU) or in a rank's other threads", waiting));
      if (tally_.waits_for_gpu_only && may_look_longer()) symmetric.doubt = Doubt::kGpuWaits;
      return symmetric;
    }
    if (deadlock->suspects.empty()) return undecided(fmt::format("{} at different places; {}", waiting, deadlock->explanation));
    std::vector<Suspect> suspects;
    for (const Blame& blame : deadlock->suspects) suspects.push_back(suspect(standings_[blame.standing], blame.reason, bounded(blame.confidence)));
    Verdict verdict = culprits(std::move(suspects), deadlock->sides_are_equal ? "" : deadlock->explanation);
    verdict.reference = deadlock->reference;
    if (deadlock->sides_are_equal) verdict.summary = make(VerdictStatus::kCulprit, deadlock->explanation + ": both cannot be right, and the stacks do not tell which is").summary;
    return verdict;
  }

  bool told_by_gpus() const {
    return std::all_of(tally_.waiting.begin(), tally_.waiting.end(), [&](std::size_t i) { return standings_[i].gpu.in_collective(); });
  }

  // For how long each rank was looked at, at least.
  double span_ms() const {
    double shortest = std::numeric_limits<double>::infinity();
    for (const std::size_t i : tally_.elsewhere) {
      const auto& motion = thread_that_told(job_, standings_[i]).motion;
      shortest = std::min(shortest, motion ? motion->span_ms : 0);
    }
    return shortest;
  }
  bool may_look_longer() const { return several_looks_ && std::all_of(job_.ranks.begin(), job_.ranks.end(), [](const RankSnapshot& rank) { return rank.source == Source::kLive; }); }
  // Longer than most steps.
  bool have_looked_long() const { return span_ms() >= 4000; }
  bool loop_at_one_place() const {
    return std::all_of(tally_.elsewhere.begin(), tally_.elsewhere.end(), [&](std::size_t i) { return standings_[i].pace == Pace::kRuns && standings_[i].busy; });
  }

  Verdict of_nobody_waits() const {
    std::vector<Suspect> definite;
    for (const std::size_t i : tally_.elsewhere) {
      const Standing& s = standings_[i];
      if (has_own_reason(s)) definite.push_back(suspect(s, reason_for(s), bounded(0.70)));
    }
    if (!definite.empty() && definite.size() < compared_) return culprits(std::move(definite), "");
    if (!tally_.ended.empty()) {
      std::string text = fmt::format("{} of {} ranks have ended ({})", tally_.ended.size(), compared_, pids_of(tally_.ended));
      for (const std::size_t i : tally_.elsewhere) {
        const Standing& s = standings_[i];
        if (tally_.elsewhere.size() == 1) text += fmt::format("; rank {} {}", rank_label(job_.ranks[s.rank]), describe_suspect(job_, s, reason_for(s)));
      }
      return undecided(text + "; no rank is seen waiting for another: the logs of those that have ended tell more");
    }
    if (compared_ == 1) {
      const Standing& s = *std::find_if(standings_.begin(), standings_.end(), [](const Standing& one) { return !one.stranger; });
      if (s.unknown()) return undecided("one rank only, and its frames do not tell what it does");
      std::size_t children = 0;
      for (const RankSnapshot& process : job_.ranks) children += process.kind == RankKind::kChild;
      return undecided(fmt::format("one rank only, nothing to compare with: it {}{}", describe_suspect(job_, s, reason_for(s)),
                                   children > 1 ? fmt::format("; if its {} child processes are the ranks, name them with --pids", children) : ""));
    }
    if (!tally_.unknown.empty())
      return undecided(fmt::format("no rank is seen waiting for another, and the frames of {} do not tell what {}", name_ranks(job_, ranks_of(tally_.unknown)),
                                   tally_.unknown.size() == 1 ? "it does" : "they do"));
    std::size_t running = 0, active = 0;   // active: they move or work, rather than polling for something at one place
    std::map<std::string, std::vector<std::size_t>> places;
    for (const std::size_t i : tally_.elsewhere) {
      const Standing& one = standings_[i];
      active += one.pace == Pace::kUnknown ? thread_that_told(job_, one).state == 'R' : one.active();
      running += one.pace == Pace::kUnknown ? thread_that_told(job_, one).state == 'R' : one.pace != Pace::kStill;
      places[place_key(job_, standings_[i])].push_back(i);
    }
    const bool all_run = running == tally_.elsewhere.size() && tally_.failed.empty();
    if (all_run && places.size() == 1 && loop_at_one_place() && may_look_longer()) {
      const Standing& s = standings_[tally_.elsewhere.front()];
      Verdict verdict = have_looked_long() ? make(VerdictStatus::kSymmetric, fmt::format("no rank differs: each {}; for {:.0f} s none got on: a loop without an end, or one long computation",
                                                                                         describe_suspect(job_, s, reason_for(s)), span_ms() / 1000))
                                           : make(VerdictStatus::kHealthy, "nothing is seen to be stuck: every rank runs, each at the same place at every look");
      verdict.doubt = Doubt::kLoops;
      return verdict;
    }
    if (all_run) return make(VerdictStatus::kHealthy, several_looks_ ? "nothing is stuck: every rank moves, none waits for another" : "nothing is stuck at this moment: every rank is running, none waits for another");
    if (places.size() == 1 && running == 0 && tally_.failed.empty()) {
      const Standing& s = standings_[tally_.elsewhere.front()];
      Verdict symmetric = make(VerdictStatus::kSymmetric, fmt::format("no rank differs: each {}", describe_suspect(job_, s, reason_for(s))));
      if (s.doing.activity == Activity::kGpuWait && may_look_longer()) symmetric.doubt = Doubt::kGpuWaits;
      return symmetric;
    }
    const auto largest = std::max_element(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (active == 0 && places.size() == 2 && largest->second.size() * 2 > tally_.elsewhere.size()) {
      const std::vector<std::size_t>& few = largest == places.begin() ? std::next(largest)->second : places.begin()->second;
      const Standing &apart = standings_[few.front()], &most = standings_[largest->second.front()];
      return undecided(fmt::format("{} {} apart: {} {}; of {} each {}; whether these wait for {} is not in their frames", name_ranks(job_, ranks_of(few)),
                                   few.size() == 1 ? "stands" : "stand", few.size() == 1 ? "it" : "each", describe_suspect(job_, apart, reason_for(apart)), name_ranks(job_, ranks_of(largest->second)), describe_suspect(job_, most, reason_for(most)),
                                   few.size() == 1 ? "it" : "them"));
    }
    return undecided("no rank waits for another at this moment, and the ranks stand at different places: " + too_few_looks());
  }

  const JobSnapshot& job_;
  const std::vector<std::vector<Role>>& roles_;
  const std::vector<Standing>& standings_;
  const Waits& waits_;
  std::vector<Evidence> messengers_;
  Tally tally_;
  std::size_t compared_ = 0;      // standings that are no strangers
  bool several_looks_ = true;
};

}  // namespace

Verdict judge(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, const std::vector<Standing>& standings, const Waits& waits) {
  return Judge(job, roles, standings, waits).verdict();
}

}  // namespace rankstacks
