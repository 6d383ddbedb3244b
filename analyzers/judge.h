// The verdict on a job, rule by rule. verdict.cc has their order; each group of rules has a file of its own:
//
//   verdict_ended.cc          processes and GPUs that have ended, failed, or are not there
//   verdict_moves.cc          whether the job gets on
//   verdict_waiting.cc        some ranks wait for others, or all do
//   verdict_nobody_waits.cc   no rank is seen waiting for another
//   suspects.cc               what is said of a suspect; confidence.cc: how sure that is
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "analyzers/analysis.h"
#include "analyzers/confidence.h"
#include "analyzers/facts.h"
#include "analyzers/gone_ranks.h"
#include "analyzers/divergence.h"

namespace rankstacks {

inline const ThreadSnapshot& deciding_thread(const JobSnapshot& job, const RankState& s) { return job.ranks[s.rank].threads[s.doing.thread]; }

inline Reason reason_for(const RankState& s) { return s.dead_child ? Reason::kWorkerDead : reason_of(s.doing.activity); }

class Judge {
 public:
  // The facts must outlive it.
  explicit Judge(const Facts& facts);
  // By the rules at the head of verdict.cc, the first that holds.
  Verdict verdict();

 private:
  // suspects.cc
  // "rank 0 is", "ranks 0-3 are": who waits for whom cannot be told among processes of two jobs.
  std::string numbers_seen_twice() const;
  Verdict make(VerdictStatus status, std::string summary) const;
  Verdict undecided(std::string summary) const { return make(VerdictStatus::kUndecided, std::move(summary)); }
  std::vector<std::size_t> ranks_of(const std::vector<std::size_t>& states) const;
  // The suspects' sentence: the first in full, the others by name.
  std::string sentence(const std::vector<Suspect>& suspects, const std::string& waiting) const;
  Suspect suspect(const RankState& s, Reason reason, double confidence) const;
  Verdict culprits(std::vector<Suspect> suspects, const std::string& waiting) const;
  // What a kernel of a rank ran into. Its process's own end, and the waits of the others, follow from that.
  std::optional<Verdict> of_gpu_faults() const;
  // GPU cores without the cores of their processes: which kernels run is all that is known.
  Verdict of_gpus_alone() const;
  Verdict of_crashed(const std::vector<std::size_t>& crashed) const;
  // A rank that lives, or whose core was taken while it did, on its way to its end because its own GPU work failed.
  // What all ranks share tells nobody apart.
  std::optional<Verdict> of_gpu_failures() const;
  // The thread that got the rank's signal dies of an error of the rank's own GPU work.
  static bool fails_on_gpu(const RankSnapshot& rank);
  // "ranks 0-3": those that moved between the samples.
  std::string moving() const;
  // The job moves: waits end between the samples. Nothing: it does not, or a part of it does not.
  std::optional<Verdict> of_progress() const;
  // Of one whose loop counter is beyond that of ranks that wait for it: it has been where they wait, and did not wait there. (Or it counts something else by
  // the same name, in an earlier loop of the same function, and will come: which a longer look may tell.)
  std::optional<Divergence> divergence_from_those_it_passed(const RankState& s) const;
  static bool has_own_reason(const RankState& s);
  // It is on a processor, or wants one: its main thread, or one that works for it.
  bool runs(const RankState& s) const;
  std::string too_few_samples() const { return several_samples_ ? "these samples cannot distinguish a hang from progress; take more of them, or over a longer time (--samples, --interval)" : "one sample cannot distinguish a hang from progress; run it again in a few seconds"; }
  Verdict of_mixed() const;
  bool is_behind_all(const RankState& s) const;
  std::string pids_of(const std::vector<std::size_t>& ranks) const;
  // Of the ranks that have ended, those that somebody waits for. A zombie has no environment any more: which number it had only the world size may tell.
  std::vector<std::size_t> needed_of_ended() const;
  std::vector<Suspect> suspects_of_ended(const std::vector<std::size_t>& ended) const;
  Verdict of_ended(const std::vector<std::size_t>& ended) const;
  // Those of them that somebody waits for.
  MissingRanks needed_of(MissingRanks missing) const;
  // Nothing: these are none.
  std::optional<Verdict> of_absent(const MissingRanks& missing, const std::vector<std::size_t>& ended) const;
  Verdict of_missing(const std::vector<int>& missing) const;
  // In a hang gloo's threads sleep. (NCCL's and MPI's spin, moving or not.)
  bool gloo_is_moving() const;
  Verdict of_waiting() const;
  bool known_from_gpus() const;
  // For how long each rank was looked at, at least.
  double span_ms() const;
  bool may_sample_longer() const { return several_samples_ && std::all_of(job_.ranks.begin(), job_.ranks.end(), [](const RankSnapshot& rank) { return rank.source == Source::kLive; }); }
  // Longer than most steps.
  bool have_sampled_long() const { return span_ms() >= 4000; }
  bool loop_at_one_place() const;
  Verdict of_nobody_waits() const;

  const Facts& facts_;
  const JobSnapshot& job_;
  const std::vector<RankState>& states_;
  std::vector<Evidence> reporters_;
  Tally tally_;
  bool several_samples_ = true;
};

}  // namespace rankstacks
