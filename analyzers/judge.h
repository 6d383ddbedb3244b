// The verdict on a job, rule by rule. verdict.cc has the order of the rules; each group of rules has its own file:
//
//     verdict_ended.cc          processes and GPUs that have ended, failed, or do not exist
//     verdict_moves.cc          whether the job makes progress
//     verdict_waiting.cc        some ranks wait for others, or all do
//     verdict_nobody_waits.cc   no rank is seen waiting for another
//     verdict_dumps.cc          what the dumps of other tools cannot tell
//     verdict_records.cc        ranks of which there are Flight Recorder dumps alone
//     verdict_apart.cc          of these, few are at another place than the others
//     suspects.cc               the sentences about a suspect; confidence.cc: how certain they are
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "analyzers/accusation.h"
#include "analyzers/analysis.h"
#include "analyzers/confidence.h"
#include "analyzers/divergence.h"
#include "analyzers/facts.h"
#include "analyzers/gone_ranks.h"
#include "analyzers/own_watchdogs.h"
#include "analyzers/progress.h"

namespace rankstacks::analyzers {

inline const ThreadSnapshot& deciding_thread(const JobSnapshot& job, const RankState& s) {
  return job.ranks[s.rank].threads[s.doing.thread];
}

class Judge {
 public:
  // The facts must outlive it.
  explicit Judge(const Facts& facts);
  // The verdict of the first rule that holds, in the order given at the top of verdict.cc.
  Verdict verdict();

 private:
  // suspects.cc
  // "rank 0 is", "ranks 0-3 are": if processes of two jobs are mixed, it cannot be determined who waits for whom.
  std::string numbers_seen_twice() const;
  Verdict make(VerdictStatus status, std::string summary) const;
  Verdict undecided(std::string summary) const { return make(VerdictStatus::kUndecided, std::move(summary)); }
  std::vector<std::size_t> ranks_of(const std::vector<std::size_t>& states) const;
  // The sentence about the suspects: the first in full, the others by name.
  std::string sentence(const std::vector<Suspect>& suspects, const std::string& waiting) const;
  Suspect suspect(const RankState& s, Reason reason, double confidence) const;
  Verdict culprits(std::vector<Suspect> suspects, const std::string& waiting) const;
  // A kernel of a rank ran into an exception. The end of its process, and the waits of the others, follow from that.
  std::optional<Verdict> of_gpu_faults() const;
  // GPU cores without the cores of their processes: only the kernels that run are known.
  Verdict of_gpus_alone() const;
  // Whether there is a record of each rank, and of some of them nothing else.
  bool are_all_recorded() const;
  // Whether they have called nothing for longer than any rank did between two calls before.
  bool have_paused_for_longest(const std::vector<Blame>& suspects) const;
  Verdict of_records_alone() const;
  Verdict of_crashed(const std::vector<std::size_t>& crashed) const;
  // Those that have crashed, without those that a watchdog of their own has ended.
  std::vector<std::size_t> first_to_crash() const;
  // Watchdogs of the program's own have ended ranks, and no rule knows the waits that they report: those are waits for
  // the ranks that are elsewhere. std::nullopt if that is not so.
  std::optional<Verdict> of_own_watchdogs() const;
  // All that is at hand are cores, and some of them have ended because connections to others broke: the first to end is
  // a rank that is missing, if one is. std::nullopt if that is not so.
  std::optional<Verdict> of_broken_connections() const;
  // Ranks that have ended, or are about to, because others did not come or broke their connections: those others are
  // the cause, whether they are there, were ended from outside, or are missing. std::nullopt if that is no question.
  std::optional<Verdict> of_reports_of_others() const;
  // How the rank says that others are the cause of its end: the thread that ends it, or its leading thread while it
  // lives and waits for nobody.
  std::optional<ExceptionCause> blames_others(const RankState& s) const;
  // The rank has aborted itself, and nothing in its core says why, except perhaps that some connection was lost.
  bool ended_without_a_reason(const RankState& s) const;
  // A watchdog thread of the rank (index into JobSnapshot::ranks) has ended it: its other threads are where they were.
  bool is_ended_by_watchdog(std::size_t r) const;
  // "ranks 0-1 lost their connections, rank 3 timed out": of ranks that end for that; "" if none does.
  std::string describe_broken_connections() const;
  // A rank that is alive (or was when its core was taken) and is about to end because its own GPU work failed. A
  // failure that all ranks share does not distinguish any of them.
  std::optional<Verdict> of_gpu_failures() const;
  // The thread that received the rank's signal dies of an error of the rank's own GPU work.
  static bool fails_on_gpu(const RankSnapshot& rank);
  // "ranks 0-3": those that moved between the samples.
  std::string moving() const;
  // At most half of the ranks moved between the samples.
  bool few_moved() const;
  std::string still_waiting_words() const;
  // The job makes progress: waits end between the samples. std::nullopt if it does not, or if a part of it does not.
  std::optional<Verdict> of_progress() const;
  bool some_wait_ended() const;
  // Some wait does not end, and is known to be for a rank that makes no progress either.
  bool waits_for_still_ranks() const;
  // Some wait ended between the samples.
  std::optional<Verdict> of_ended_waits() const;
  // The counters of the ranks that are waited for increase: they are slower than the others, not stuck. `passed_by`:
  // one is beyond those that wait for it.
  std::optional<Verdict> of_counting(bool passed_by) const;
  // Rank 0 evaluates, logs or saves while the others wait for it: this is normal as long as it moves.
  std::optional<Verdict> of_duties_of_rank_0() const;
  // For a rank whose loop counter is beyond that of ranks that wait for it: it has been where they wait, and did not
  // wait there. (Or it counts something else by the same name, in an earlier loop of the same function, and will
  // arrive; more samples may show which.)
  std::optional<Divergence> divergence_from_those_it_passed(const RankState& s) const;
  static bool has_own_reason(const RankState& s);
  // The rank is on a processor, or ready to run: its main thread, or a thread that works for it.
  bool runs(const RankState& s) const;
  std::string too_few_samples() const {
    if (std::all_of(job_.ranks.begin(), job_.ranks.end(),
                    [](const RankSnapshot& rank) { return rank.source == Source::kCore; }))
      return "cores of one moment cannot distinguish a hang from progress; look at the job while it runs (attach)";
    return several_samples_ ? "these samples cannot distinguish a hang from progress; take more of them, or over a "
                              "longer time (--samples, --interval)"
                            : "one sample cannot distinguish a hang from progress; run it again in a few seconds";
  }
  // The ranks that are waited for wait for requests from outside of the job, by design. std::nullopt if there is none,
  // or if some rank that is waited for does something else.
  std::optional<Verdict> of_idle_servers() const;
  bool hands_on_requests(const RankState& s) const;
  bool accepts_requests(const RankState& s) const;
  // The job has no work: nobody does anything, and some wait for the next request or task.
  std::optional<Verdict> of_no_work() const;
  // Of ranks at different places, outside of all waits that are known, one may wait for another: in a live process the
  // other end of its call shows that, in the dump of another tool nothing does. std::nullopt if that is no question.
  std::optional<Verdict> of_dumps_apart() const;
  // Some rank is known from the dump of another tool that lacks frames of this kind which the process has, native ones
  // or Python ones: where the ranks seem to be alike, these may differ.
  bool dumps_lack(FrameKind kind) const;
  // Why dumps of other tools are not enough for a verdict's accusation: the suspects may be on their way, or what
  // they wait for is not known. "" if they are.
  std::string not_shown_by_dumps(const Verdict& verdict) const;
  Verdict with_doubt_of_dumps(Verdict verdict) const;
  Verdict of_first_rule();
  std::vector<std::size_t> that_hold_up() const;
  Verdict of_mixed() const;
  // Those that are waited for run their own code, and this may be a step like any other. std::nullopt if it is not.
  std::optional<Verdict> of_steps_under_way(const std::vector<std::size_t>& needed) const;
  std::optional<Verdict> of_unknown_holders(const std::vector<std::size_t>& needed) const;
  // Those that are waited for are most of the job, and look again and again for something at one place: a barrier of
  // their own, perhaps, to which those that wait for them should come. std::nullopt if that is not so.
  std::optional<Verdict> of_polling_majority(const std::vector<std::size_t>& needed) const;
  std::vector<Suspect> suspects_among(const std::vector<std::size_t>& needed) const;
  // What more samples of those that are waited for may show.
  Doubt doubt_of_sinks(const std::vector<std::size_t>& needed) const;
  // The ranks that are waited for get on, which would be the whole of it if it were known what all ranks do.
  std::optional<Verdict> of_moving_with_unseen() const;
  // It waits in its event loop, or looks again and again for something, and what for is not known: perhaps for what
  // another rank will do.
  bool awaits_something(const RankState& s) const;
  // "the frames of rank 1 do not show what it does"
  std::string describe_unknown() const;
  // For a verdict that names no rank because some are in calls of the GPU's driver: these calls may return soon.
  Verdict with_doubt_of_driver_calls(Verdict verdict) const;
  bool is_behind_all(const RankState& s) const;
  // Every sample found it at one place, but it ran in between: the same short wait again and again, or, in a job that
  // makes progress, one wait of every step.
  bool may_come_back(const RankState& s) const;
  // It is in its own code, its data pipeline or a compiler within its process, and uses the processor all the time: it
  // may get on with a long step.
  bool may_work(const RankState& s) const;
  // It is in a sleep of its own code, or waits for a thread of its own that is: a pause, which will be over.
  bool sleeps(const RankState& s) const;
  // It waits for a kernel that runs on its GPU, and nothing shows that this kernel does not compute.
  bool may_compute(const RankState& s) const;
  std::string pids_of(const std::vector<std::size_t>& ranks) const;
  // Of the ranks that have ended, those that some rank waits for. A zombie has no environment any more, so its rank
  // number can only be derived from the world size.
  std::vector<std::size_t> needed_of_ended() const;
  std::vector<Suspect> suspects_of_ended(const std::vector<std::size_t>& ended) const;
  Verdict of_ended(const std::vector<std::size_t>& ended) const;
  // What runs on the GPUs was read, but not of all suspects: some were in a call of the driver, which kept its lock.
  bool lacks_gpus_of(const std::vector<Blame>& suspects) const;
  // Those of the missing ranks that some rank waits for.
  MissingRanks needed_of(MissingRanks missing) const;
  // std::nullopt if no rank is absent.
  std::optional<Verdict> of_absent(const MissingRanks& missing, const std::vector<std::size_t>& ended) const;
  Verdict of_missing(const std::vector<int>& missing) const;
  // `others`: what those do that are there.
  Verdict of_missing(const std::vector<int>& missing, std::string_view others) const;
  std::string describe_who_is_left() const;
  // No rank is known to wait for another, but all that are there are at one place, where they stay or come back to, and
  // others of the job are not there.
  std::optional<Verdict> of_missing_at_one_place() const;
  // If ranks are on nodes that were asked and have not answered: those that may be dead are suspects.
  std::optional<Verdict> of_silent_nodes(const MissingRanks& missing) const;
  // In a hang, gloo's threads sleep. (NCCL's and MPI's threads spin whether or not there is progress.)
  bool gloo_is_moving() const;
  Verdict of_waiting() const;
  // All wait in a barrier of Python's multiprocessing, which knows no ranks. It is in memory that the processes share:
  // nothing but one that does not come keeps it closed.
  bool in_barrier_of_processes() const;
  bool known_from_gpus() const;
  // Every rank waits for its GPU, and all GPUs compute: a long step.
  std::optional<Verdict> of_computing_gpus() const;
  // The time that every rank was sampled for, at least.
  double span_ms() const;
  bool may_sample_longer() const {
    return several_samples_ && std::all_of(job_.ranks.begin(), job_.ranks.end(),
                                           [](const RankSnapshot& rank) { return rank.source == Source::kLive; });
  }
  static constexpr double kLongerThanWaitsMs = 2500;  // waits that a step is made of
  // On a machine so busy that the samples follow each other at once, nothing could move between them.
  bool have_sampled_too_briefly() const {
    constexpr double kTooBriefMs = 200;
    return may_sample_longer() && span_ms() < kTooBriefMs;
  }
  // Longer than most steps take.
  bool have_sampled_long() const { return span_ms() >= kLongerThanStepsMs; }
  bool loop_at_one_place() const;
  // Some ranks have ended, and no rank is seen waiting for them.
  Verdict of_ended_not_waited_for() const;
  // The only rank has child processes that wait for each other in a barrier or another collective, and one that has
  // ended. std::nullopt if that is not so.
  std::optional<Verdict> of_lost_party(const RankState& s) const;
  // Every rank waits for a child of its own, and those of some wait for those of others, as processes that write a
  // checkpoint in the background do.
  std::optional<Verdict> of_waiting_children() const;
  // There is one rank only, so that there is none to compare it with.
  Verdict of_single_rank() const;
  // All ranks run, each at one place in every sample, and this place is the same for all.
  Verdict of_loop_at_one_place() const;
  // All sleep at one place again and again, and by their records it has never taken as long before.
  std::optional<Verdict> of_silence_at_one_place() const;
  // No rank runs, and all are at one place.
  Verdict of_stillness_at_one_place() const;
  // All run, some of them waiting for a kernel of their own that only polls.
  std::optional<Verdict> of_polling_kernels() const;
  // In one call of a function of the user's, some look again and again for something, and the others, which make no
  // progress, wait there for a program, a file or a worker of their own: what these prepare is what the former look
  // for. (Who waits for the network may be a server between two requests.) std::nullopt if that is not so.
  std::optional<Verdict> of_preparing() const;
  // All that is at hand are cores, in which no connection has another end: most ranks receive over one, and the others
  // wait for a thread, a lock or a child of their own, as all of their threads do. It is these that the
  // former wait for, as far as is known. std::nullopt if that is not so.
  std::optional<Verdict> of_waits_inwards() const;
  // No rank moves. They are at two places: few of them at one, the others, which are most of them, at the other.
  // Those have passed, in one function, what the others look for again and again, and by their records no rank has
  // called its operations for much longer than ever before.
  std::optional<Verdict> of_few_ahead(const std::vector<std::size_t>& few,
                                      const std::vector<std::size_t>& others) const;
  Verdict of_few_apart(const std::vector<std::size_t>& few, const std::vector<std::size_t>& others) const;
  // Nobody gets on: each rank runs in one function, and of most ranks, which are at one place, each runs but for a
  // moment now and then: they look again and again for what the others may be going to do.
  bool most_poll(const std::vector<std::size_t>& most) const;
  // No rank waits for another, and they are at two places.
  std::optional<Verdict> of_two_places(const std::vector<std::size_t>& a, const std::vector<std::size_t>& b,
                                       bool all_run, bool none_is_active) const;
  // All run. Most, or all but some that stay in one function, look again and again for something at one place, asleep
  // in between: they may wait for what the others are to do. std::nullopt if that is not so, or if one of the others
  // gets on: it was in other functions, or a counter of its work advances.
  std::optional<Verdict> of_looking_ranks() const;
  Verdict of_nobody_waits() const;

  const Facts& facts_;
  const JobSnapshot& job_;
  const std::vector<RankState>& states_;
  std::vector<Evidence> reporters_;
  OwnWatchdogs own_watchdogs_;
  Tally tally_;
  bool several_samples_ = false;  // of some rank
};

}  // namespace rankstacks::analyzers
