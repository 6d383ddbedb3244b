// Which ranks hold up the job, by rule:
//
//   1. A fatal signal in a core that the other cores do not have: `crashed`. An exception of a kernel on a GPU has the
//      same result, and comes first. What GPUs run takes precedence over the CPU's stacks (gpu_waits.h). Ranks that end
//      because their connections broke, or because others did not come in time, follow from another one: one that was
//      ended from outside, or lives, and does something else; else one without a core, `missing`, if no core has a
//      cause of its own.
//   2. Waits that end between two samples, or loop counters that increase in ranks that are waited for: the job makes
//      progress, `healthy`. Not so if a wait that does not end needs, by its group or peer, a rank that makes no
//      progress elsewhere. A rank that counts on past the step in which the others wait is a special case: healthy
//      with a doubt, until it was sampled for longer than steps take; then rule 3.
//   3. Some ranks wait and others do something else. The suspects are those others that some rank waits for (the sinks
//      of wait_graph.h), each with the reason that its frames show. Ranks that wait are never suspects here, nor are
//      ranks whose frames do not show what they do. If rank 0 is the only one at work, and moves, it does its duty:
//      `healthy`.
//      A rank that waits for requests in the event loop of a server is not accused: if only such ranks are waited for,
//      the job has nothing to do, `healthy`.
//   4. All wait. What PyTorch's Flight Recorder has written down of them comes first, then what their watchdogs say, then
//      NCCL's counts (deadlock.h). Alike: symmetric. Ranks missing by the world size: those. Otherwise it depends on what makes the
//      cycle: a rank that handles an exception or is on its way out of the interpreter, and makes calls there that the
//      others do not make (`exception`); sends and receives without a counterpart; groups in another order; another
//      collective; the same code at an earlier step. The smaller side is accused, or both if they are equal. If places
//      have no majority, calls of a known group may have one. If the pipeline's stages are known (coordinates.h) and
//      no group is, sides are compared within a stage.
//   5. No rank waits. stopped, debugger and worker-dead are reasons of their own. All running or moving: healthy. None
//      running, all at one place: symmetric. Otherwise undecided. All running at one place in every sample: healthy
//      with a doubt, and symmetric once that has lasted longer than steps take.
//
// Last, what the dumps of other tools cannot show takes an accusation back: `undecided` (verdict_dumps.cc).
//
// In all cases a watchdog that ends its process is named as the reporter (watchdog_reporters.h), with the message
// that it carries. A watchdog that carries an error of its own process's GPU work is not a reporter: its rank has
// `crashed`, or, while it is alive, is about to end by that `exception`, which is checked after rule 1.
//
// Confidence: for a sink by the tables in confidence.cc; 0.70 for a missing rank (0.80 if NCCL has lost a connection),
// 0.65 for a mismatch (0.80 if groups or peers are known, 0.40 between equal sides).
#include "analyzers/judge.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "analyzers/gone_ranks.h"
#include "analyzers/watchdog_reporters.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {

Judge::Judge(const Facts& facts)
    : facts_(facts),
      job_(facts.job),
      states_(facts.states),
      reporters_(find_watchdog_reporters(facts.job, facts.roles)),
      own_watchdogs_(find_own_watchdogs(facts.job, facts.states)) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const RankState& s = states_[i];
    if (s.unrelated) {
      tally_.unrelated.push_back(s.rank);
      continue;
    }
    ++tally_.compared;
    if (s.recorded_only) tally_.recorded_only.push_back(i);
    if (s.gpu_only) tally_.gpu_only.push_back(i);
    else if (!s.readable) (s.ended ? tally_.ended : tally_.failed).push_back(s.rank);
    else if (s.unknown()) tally_.unknown.push_back(i);
    else (s.waits() ? tally_.waiting : tally_.elsewhere).push_back(i);
    if (s.readable && job_.ranks[s.rank].status == Status::kPartial) tally_.partial.push_back(s.rank);
    if (s.waits() && (!s.gpu_wait_may_be_collective || s.timed_out)) tally_.waits_for_gpu_only = false;
    tally_.inferred |= s.inferred;
    if (s.readable) several_samples_ |= s.progress != Progress::kUnknown;
  }
  const std::vector<std::size_t> sinks = facts_.waits.sinks();
  std::copy_if(tally_.elsewhere.begin(), tally_.elsewhere.end(), std::back_inserter(tally_.needed),
               [&](std::size_t i) { return std::binary_search(sinks.begin(), sinks.end(), states_[i].rank); });
  // The wait that it has reported is for nobody who is there.
  if (own_watchdogs_.waits_are_known && tally_.needed.empty()) own_watchdogs_ = {};
}

Verdict Judge::verdict() { return with_doubt_of_dumps(of_first_rule()); }

Verdict Judge::of_first_rule() {
  if (tally_.compared == 0) return undecided("there is no rank to look at");
  if (tally_.ended.size() == tally_.compared) return undecided("every rank has ended");
  const bool none_read = tally_.failed.size() + tally_.ended.size() == tally_.compared;
  if (none_read && tally_.recorded_only.empty()) return undecided("no rank could be read");
  if (const std::string twice = numbers_seen_twice(); !twice.empty())
    return undecided(
        fmt::format("{} there more than once: these are processes of several jobs, or of one job at several times; "
                    "name those of one (--pids, or its cores)",
                    twice));
  if (auto faults = of_gpu_faults()) return *faults;
  if (const auto crashed = first_to_crash(); !crashed.empty()) return of_crashed(crashed);
  if (auto failed = of_gpu_failures()) return *failed;
  if (auto reported = of_reports_of_others()) return *reported;
  if (auto broken = of_broken_connections()) return *broken;
  if (are_all_recorded()) return of_records_alone();
  if (tally_.gpu_only.size() + tally_.failed.size() + tally_.ended.size() == tally_.compared) return of_gpus_alone();
  if (several_samples_)
    if (auto healthy = of_progress()) return *healthy;
  if (auto reported = of_own_watchdogs()) return *reported;
  if (auto idle = of_idle_servers()) return *idle;
  if (auto apart = of_dumps_apart()) return *apart;
  if (!tally_.needed.empty()) return of_mixed();
  if (!tally_.waiting.empty()) return of_waiting();
  return of_nobody_waits();
}

namespace {

// Ranks of which frames were read before they ended: the verdict is made of these frames.
std::string describe_ended_meanwhile(const JobSnapshot& job) {
  std::vector<std::size_t> ended;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind == RankKind::kRank && rank.status != Status::kFailed &&
        std::any_of(rank.problems.begin(), rank.problems.end(),
                    [](const Problem& p) { return p.code == ProblemCode::kEnded; }))
      ended.push_back(r);
  }
  if (ended.empty()) return "";
  return fmt::format("; {} ended while {} looked at", name_ranks(job, ended),
                     ended.size() == 1 ? "it was" : "they were");
}

}  // namespace

Verdict judge(const Facts& facts) {
  Verdict verdict = Judge(facts).verdict();
  verdict.summary += describe_ended_meanwhile(facts.job);
  return verdict;
}

}  // namespace rankstacks::analyzers
