#include "diff/job_diff.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "diff/environment_changes.h"
#include "diff/movement.h"
#include "diff/settings.h"
#include "model/captured_at.h"
#include "model/process_key.h"

namespace rankstacks::diff {
namespace {

SeenJob see(const JobSnapshot& job, analyzers::ThreadComparison& comparison) {
  SeenJob seen(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (const ThreadSnapshot& thread : job.ranks[r].threads) seen[r].push_back(comparison.see(thread));
  return seen;
}

// Why a process of `job` is not in `other`.
Absence absence_in(const JobSnapshot& other, const RankSnapshot& process) {
  const auto is_it = [&](const UnseenRank& unseen) {
    return process.kind == RankKind::kRank && process.rank == unseen.rank &&
           process_key(process) == process_key(unseen);
  };
  if (std::any_of(other.not_looked_at.begin(), other.not_looked_at.end(), is_it)) return Absence::kNotExamined;
  const auto on_its_host = [&](const RankSnapshot& rank) { return rank.host == process.host; };
  if (std::none_of(other.ranks.begin(), other.ranks.end(), on_its_host)) return Absence::kNoHost;
  return Absence::kGone;
}

std::vector<LoneProcess> lone(const JobSnapshot& job, const JobSnapshot& other,
                              const std::vector<std::size_t>& indices) {
  std::vector<LoneProcess> found;
  for (const std::size_t index : indices) found.push_back({index, absence_in(other, job.ranks[index])});
  return found;
}

// Clusters of both sides by what they have in common: the kind of process, the role, the stack.
class Clusters {
 public:
  Clusters(const Sides& sides, const SeenJob& old, const SeenJob& now, const std::vector<ProcessChange>& processes)
      : sides_(sides), old_seen_(old), now_seen_(now), now_of_(sides.old.job.ranks.size()) {
    for (const ProcessChange& process : processes) now_of_[process.pair.old] = process.pair.now;
  }

  std::vector<ClusterChange> changes() const {
    std::map<Key, std::size_t> old_clusters;
    for (std::size_t c = 0; c < sides_.old.analysis.clusters.size(); ++c)
      old_clusters.emplace(key_of(sides_.old, old_seen_, c), c);
    std::vector<ClusterChange> came, stayed, went;
    std::set<std::size_t> found_again;
    for (std::size_t c = 0; c < sides_.now.analysis.clusters.size(); ++c) {
      const auto before = old_clusters.find(key_of(sides_.now, now_seen_, c));
      if (before == old_clusters.end() || !found_again.insert(before->second).second) {
        came.push_back({ClusterFate::kCame, {}, c, {}, {}});
        continue;
      }
      stayed.push_back({ClusterFate::kStayed, before->second, c, {}, {}});
      compare_members(stayed.back());
    }
    for (std::size_t c = 0; c < sides_.old.analysis.clusters.size(); ++c)
      if (!found_again.contains(c)) went.push_back({ClusterFate::kWent, c, {}, {}, {}});
    came.insert(came.end(), went.begin(), went.end());
    came.insert(came.end(), stayed.begin(), stayed.end());
    return came;
  }

 private:
  using Key = std::tuple<RankKind, known::Role, std::vector<analyzers::NormId>>;

  static Key key_of(const Side& side, const SeenJob& seen, std::size_t index) {
    const analyzers::Cluster& cluster = side.analysis.clusters[index];
    const auto& [rank, thread] = cluster.members.front();
    return {side.job.ranks[rank].kind, cluster.role, seen[rank][thread].stack};
  }

  void compare_members(ClusterChange& change) const {
    const auto& before = sides_.old.analysis.clusters[*change.old].ranks;
    const auto& after = sides_.now.analysis.clusters[*change.now].ranks;
    std::set<std::size_t> again;
    for (const std::size_t o : before) {
      if (now_of_[o] && std::binary_search(after.begin(), after.end(), *now_of_[o])) again.insert(*now_of_[o]);
      else change.left.push_back(o);
    }
    for (const std::size_t n : after)
      if (!again.contains(n)) change.joined.push_back(n);
  }

  const Sides& sides_;
  const SeenJob &old_seen_, &now_seen_;
  std::vector<std::optional<std::size_t>> now_of_;  // by the index in the old report
};

VerdictChange verdict_change(const Sides& sides, const std::vector<ProcessChange>& processes) {
  const analyzers::Verdict &old = sides.old.analysis.verdict, &now = sides.now.analysis.verdict;
  std::map<std::size_t, std::size_t> now_of;
  for (const ProcessChange& process : processes) now_of.emplace(process.pair.old, process.pair.now);
  const auto is_same = [&](const analyzers::Suspect& before, const analyzers::Suspect& after) {
    if (before.missing_rank >= 0 || after.missing_rank >= 0) return before.missing_rank == after.missing_rank;
    const auto found = now_of.find(before.rank);
    return found != now_of.end() && found->second == after.rank;
  };
  VerdictChange change{old.status == now.status && old.suspects.size() == now.suspects.size(), {}};
  std::vector<bool> found(now.suspects.size(), false);
  for (std::size_t o = 0; o < old.suspects.size(); ++o) {
    SuspectChange suspect{o, {}};
    for (std::size_t n = 0; n < now.suspects.size() && !suspect.now; ++n)
      if (!found[n] && is_same(old.suspects[o], now.suspects[n])) suspect.now = n;
    if (suspect.now) found[*suspect.now] = true;
    change.same = change.same && suspect.now && old.suspects[o].reason == now.suspects[*suspect.now].reason;
    change.suspects.push_back(suspect);
  }
  for (std::size_t n = 0; n < now.suspects.size(); ++n)
    if (!found[n]) change.suspects.push_back({{}, n});
  return change;
}

// What NCCL and the Flight Recorder count of the ranks that are the same processes.
class RankCounters {
 public:
  RankCounters(const Sides& sides, const std::vector<ProcessChange>& processes) : sides_(sides) {
    for (const ProcessChange& process : processes)
      if (process.pair.match == Match::kProcess) {
        pairs_.push_back(&process.pair);
        old_of_.emplace(process_key(sides.now.job.ranks[process.pair.now]), &process.pair);
      }
  }

  std::vector<RankCounter> read() {
    if (sides_.old.job.nccl && sides_.now.job.nccl) read_nccl();
    for (const ProcessPair* pair : pairs_) read_records(*pair);
    return std::move(counters_);
  }

 private:
  static std::int64_t launches_of(const NcclMember& member) {
    std::int64_t sum = 0;
    for (const auto& [name, count] : member.launched)
      if (__builtin_add_overflow(sum, count, &sum)) return INT64_MAX;
    return sum;
  }

  void read_nccl() {
    using Key = std::tuple<std::string_view, std::string_view, int>;
    std::map<Key, const NcclMember*> before;
    for (const NcclCommunicator& communicator : sides_.old.job.nccl->communicators)
      for (const NcclMember& member : communicator.members)
        before.emplace(Key(communicator.hash, communicator.secondary_hash, member.rank), &member);
    for (const NcclCommunicator& communicator : sides_.now.job.nccl->communicators)
      for (const NcclMember& member : communicator.members) {
        const auto old = before.find({communicator.hash, communicator.secondary_hash, member.rank});
        if (old == before.end() || !member.process) continue;
        const auto pair = old_of_.find(process_key(*member.process));
        if (pair == old_of_.end()) continue;
        counters_.push_back({pair->second->old, pair->second->now, CounterKind::kNcclLaunches, communicator.hash,
                             launches_of(*old->second), launches_of(member)});
      }
  }

  void read_records(const ProcessPair& pair) {
    const auto &before = sides_.old.job.ranks[pair.old].flight_record,
               &after = sides_.now.job.ranks[pair.now].flight_record;
    if (!before || !after) return;
    using Key = std::pair<std::string_view, std::string_view>;
    std::map<Key, const RecordedGroup*> groups;
    for (const RecordedGroup& group : before->groups) groups.emplace(Key(group.name, group.description), &group);
    for (const RecordedGroup& group : after->groups) {
      const auto old = groups.find({group.name, group.description});
      if (old == groups.end()) continue;
      const auto add = [&](CounterKind kind, std::optional<std::int64_t> was, std::optional<std::int64_t> is) {
        if (was && is) counters_.push_back({pair.old, pair.now, kind, group.name, *was, *is});
      };
      add(CounterKind::kRecordedEnqueued, old->second->last_enqueued, group.last_enqueued);
      add(CounterKind::kRecordedCompleted, old->second->last_completed, group.last_completed);
    }
  }

  const Sides& sides_;
  std::vector<const ProcessPair*> pairs_;
  std::map<ProcessKey, const ProcessPair*> old_of_;
  std::vector<RankCounter> counters_;
};

Outcome outcome_of(const Sides& sides, const std::vector<ProcessChange>& processes) {
  if (processes.empty()) return Outcome::kUnrelated;
  std::size_t moved = 0, still = 0, anew = 0;
  for (const ProcessChange& process : processes) {
    if (sides.now.job.ranks[process.pair.now].kind != RankKind::kRank) continue;
    if (process.pair.match == Match::kRank) ++anew;
    else if (process.movement == Movement::kMoved) ++moved;
    else if (process.movement != Movement::kUnknown) ++still;
  }
  if (moved > 0) return still > 0 ? Outcome::kPartlyMoved : Outcome::kMoved;
  if (still > 0) return Outcome::kStood;
  return anew > 0 ? Outcome::kStartedAnew : Outcome::kUnknown;
}

}  // namespace

JobDiff diff_jobs(const Sides& sides) {
  JobDiff diff;
  const auto before = captured_at_ms(sides.old.job.captured_at), after = captured_at_ms(sides.now.job.captured_at);
  if (before && after) diff.between_ms = *after - *before;
  const double seconds = diff.between_ms ? std::max(0.0, *diff.between_ms / 1000) : 0;

  analyzers::ThreadComparison comparison(sides.now.job.frames);
  const SeenJob old_seen = see(sides.old.job, comparison), now_seen = see(sides.now.job, comparison);
  JobMatch match = match_jobs(sides, old_seen, now_seen);
  for (ProcessPair& pair : match.pairs) {
    ProcessChange change{std::move(pair), Movement::kUnknown, {}};
    for (const ThreadPair& thread : change.pair.threads)
      change.threads.push_back(thread_change(sides, change.pair, thread, old_seen[change.pair.old][thread.old],
                                             now_seen[change.pair.now][thread.now], seconds));
    change.movement = movement_of(sides, change);
    diff.processes.push_back(std::move(change));
  }
  diff.outcome = outcome_of(sides, diff.processes);
  diff.gone = lone(sides.old.job, sides.now.job, match.gone);
  diff.joined = lone(sides.now.job, sides.old.job, match.joined);
  diff.counters = RankCounters(sides, diff.processes).read();
  diff.clusters = Clusters(sides, old_seen, now_seen, diff.processes).changes();
  diff.verdict = verdict_change(sides, diff.processes);
  diff.settings = changed_settings(sides, diff.processes);
  diff.differences = difference_changes(sides);
  return diff;
}

}  // namespace rankstacks::diff
