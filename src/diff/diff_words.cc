#include "diff/diff_words.h"

#include <cmath>

#include <fmt/format.h>

#include "base/word_table.h"
#include "model/rank_set.h"

namespace rankstacks::diff {
namespace {

constexpr WordTable<Outcome, 6> kOutcomes = {{{Outcome::kMoved, "moved"},
                                              {Outcome::kPartlyMoved, "partly-moved"},
                                              {Outcome::kStood, "stood"},
                                              {Outcome::kStartedAnew, "started-anew"},
                                              {Outcome::kUnknown, "unknown"},
                                              {Outcome::kUnrelated, "unrelated"}}};
constexpr WordTable<Movement, 6> kMovements = {{{Movement::kUnknown, "unknown"},
                                                {Movement::kMoved, "moved"},
                                                {Movement::kRan, "ran"},
                                                {Movement::kStood, "stood"},
                                                {Movement::kSamePlace, "same-place"},
                                                {Movement::kElsewhere, "elsewhere"}}};
constexpr WordTable<MovedBy, 3> kMovedBy = {
    {{MovedBy::kPlace, "place"}, {MovedBy::kCounter, "counter"}, {MovedBy::kSamples, "samples"}}};
constexpr WordTable<Match, 2> kMatches = {{{Match::kProcess, "process"}, {Match::kRank, "rank"}}};
constexpr WordTable<Absence, 3> kAbsences = {
    {{Absence::kGone, "gone"}, {Absence::kNotExamined, "not-examined"}, {Absence::kNoHost, "no-host"}}};
constexpr WordTable<ClusterFate, 3> kFates = {
    {{ClusterFate::kCame, "came"}, {ClusterFate::kWent, "went"}, {ClusterFate::kStayed, "stayed"}}};
constexpr WordTable<CounterKind, 3> kCounters = {{{CounterKind::kNcclLaunches, "nccl-launches"},
                                                  {CounterKind::kRecordedEnqueued, "recorded-enqueued"},
                                                  {CounterKind::kRecordedCompleted, "recorded-completed"}}};
constexpr WordTable<Setting, 24> kSettings = {{{Setting::kTool, "rankstacks"},
                                               {Setting::kHost, "host"},
                                               {Setting::kExecutable, "executable"},
                                               {Setting::kCommand, "command"},
                                               {Setting::kPython, "python"},
                                               {Setting::kWorldSize, "world-size"},
                                               {Setting::kCoordinates, "coordinates"},
                                               {Setting::kStatus, "status"},
                                               {Setting::kGpus, "gpus"},
                                               {Setting::kGpuDriver, "gpu-driver"},
                                               {Setting::kNccl, "nccl"},
                                               {Setting::kVersion, "version"},
                                               {Setting::kBuild, "build"},
                                               {Setting::kVariable, "variable"},
                                               {Setting::kLimit, "limit"},
                                               {Setting::kMemoryLimit, "memory-limit"},
                                               {Setting::kCpuLimit, "cpu-limit"},
                                               {Setting::kProcessLimit, "process-limit"},
                                               {Setting::kKernel, "kernel"},
                                               {Setting::kDistribution, "distribution"},
                                               {Setting::kContainer, "container"},
                                               {Setting::kCpus, "cpus"},
                                               {Setting::kMemoryNodes, "memory-nodes"},
                                               {Setting::kClock, "clock"}}};

using Ranks = std::vector<std::size_t>;

// The ranks of the new report whose pair has this match and movement.
Ranks ranks_with(const Sides& sides, const JobDiff& diff, Match match, Movement movement) {
  Ranks ranks;
  for (const ProcessChange& process : diff.processes)
    if (sides.now.job.ranks[process.pair.now].kind == RankKind::kRank && process.pair.match == match &&
        process.movement == movement)
      ranks.push_back(process.pair.now);
  return ranks;
}

Ranks lone_ranks(const JobSnapshot& job, const std::vector<LoneProcess>& processes, Absence absence) {
  Ranks ranks;
  for (const LoneProcess& process : processes)
    if (process.absence == absence && job.ranks[process.index].kind == RankKind::kRank) ranks.push_back(process.index);
  return ranks;
}

// Sentences about sets of ranks, each with the verb in the number of its set.
class Sentences {
 public:
  void add(const JobSnapshot& job, const Ranks& ranks, const std::string& of_one, const std::string& of_many) {
    if (ranks.empty()) return;
    text_ +=
        fmt::format("{}{} {}", text_.empty() ? "" : "; ", name_ranks(job, ranks), ranks.size() == 1 ? of_one : of_many);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_lone(Sentences& sentences, const JobSnapshot& job, const std::vector<LoneProcess>& processes, bool gone) {
  const auto add = [&](Absence absence, const std::string& is, const std::string& are) {
    sentences.add(job, lone_ranks(job, processes, absence), is, are);
  };
  add(Absence::kGone, gone ? "is gone" : "is new", gone ? "are gone" : "are new");
  const std::string other = gone ? "NEW" : "OLD";
  add(Absence::kNotExamined, "was not examined in " + other, "were not examined in " + other);
  add(Absence::kNoHost, "is of a host that is not in " + other, "are of hosts that are not in " + other);
}

}  // namespace

std::string_view to_string(Outcome outcome) { return word_of(kOutcomes, outcome); }
std::string_view to_string(Movement movement) { return word_of(kMovements, movement); }
std::string_view to_string(MovedBy by) { return word_of(kMovedBy, by); }
std::string_view to_string(Match match) { return word_of(kMatches, match); }
std::string_view to_string(Absence absence) { return word_of(kAbsences, absence); }
std::string_view to_string(ClusterFate fate) { return word_of(kFates, fate); }
std::string_view to_string(CounterKind kind) { return word_of(kCounters, kind); }
std::string_view to_string(Setting setting) { return word_of(kSettings, setting); }

std::string duration_text(double ms) {
  const double seconds = std::abs(ms) / 1000;
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  // Beyond what any clock states: a hostile report's time.
  const auto whole = static_cast<std::int64_t>(std::min(seconds, 1e12));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86'400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86'400, whole % 86'400 / 3600);
}

std::string summary_of(const Sides& sides, const JobDiff& diff) {
  if (diff.outcome == Outcome::kUnrelated)
    return "no process and no rank of OLD is in NEW: they may be reports of different jobs";
  const JobSnapshot &old = sides.old.job, &now = sides.now.job;
  const std::string ago = diff.between_ms && *diff.between_ms > 0 ? duration_text(*diff.between_ms) + " ago" : "in OLD";
  Sentences sentences;
  const auto add = [&](Match match, Movement movement, const std::string& of_one, const std::string& of_many) {
    sentences.add(now, ranks_with(sides, diff, match, movement), of_one, of_many);
  };
  add(Match::kProcess, Movement::kStood, "stands where it stood " + ago + ", and has not run",
      "stand where they stood " + ago + ", and have not run");
  add(Match::kProcess, Movement::kRan, "is where it was " + ago + ", and has run there",
      "are where they were " + ago + ", and have run there");
  add(Match::kProcess, Movement::kMoved, "has moved", "have moved");
  add(Match::kProcess, Movement::kUnknown, "lacks a stack in one of the reports", "lack stacks in one of the reports");
  add(Match::kRank, Movement::kSamePlace, "was started anew, and is at the same place again",
      "were started anew, and are at the same places again");
  add(Match::kRank, Movement::kElsewhere, "was started anew, and is elsewhere", "were started anew, and are elsewhere");
  add(Match::kRank, Movement::kUnknown, "was started anew, and lacks a stack in one of the reports",
      "were started anew, and lack stacks in one of the reports");
  add_lone(sentences, old, diff.gone, true);
  add_lone(sentences, now, diff.joined, false);
  return sentences.take();
}

}  // namespace rankstacks::diff
