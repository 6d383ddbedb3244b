#include "analyzers/analysis.h"

#include <algorithm>
#include <utility>

#include "analyzers/candidates.h"
#include "analyzers/difference_words.h"
#include "analyzers/facts.h"
#include "analyzers/gone_ranks.h"
#include "analyzers/rank_activity.h"

namespace rankstacks::analyzers {

namespace {

// Whether a difference between ranks may be the cause of what the verdict says.
bool may_follow_from_differences(const Verdict& verdict) {
  if (verdict.status == VerdictStatus::kUndecided || verdict.status == VerdictStatus::kSymmetric) return true;
  return std::any_of(verdict.suspects.begin(), verdict.suspects.end(), [](const Suspect& suspect) {
    return suspect.reason == Reason::kCollectiveMismatch || suspect.reason == Reason::kCrashed ||
           suspect.reason == Reason::kProcessGroupOrder || suspect.reason == Reason::kUnmatchedP2p;
  });
}

// Adds the first of them to the summary. The status and the suspects stay as they are.
void mention_differences(const JobSnapshot& job, const std::vector<Difference>& differences, Verdict& verdict) {
  if (!may_follow_from_differences(verdict)) return;
  for (std::size_t i = 0; i < differences.size(); ++i)
    if (differences[i].concerns_communication) verdict.differences.push_back(i);
  if (!verdict.differences.empty())
    verdict.summary += "; note: " + describe(job, differences[verdict.differences.front()]);
}

}  // namespace

Analysis analyze(const JobSnapshot& job) { return analyze(job, find_differences(job)); }

Analysis analyze(const JobSnapshot& job, std::vector<Difference> differences) {
  Analysis analysis;
  const Families families(job);
  analysis.roles = assign_roles(job);
  analysis.clusters = cluster_threads(job, analysis.roles);
  analysis.cluster_of.resize(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) analysis.cluster_of[r].assign(job.ranks[r].threads.size(), -1);
  for (const Cluster& cluster : analysis.clusters)
    for (const auto& [rank, thread] : cluster.members) analysis.cluster_of[rank][thread] = cluster.id;
  const std::vector<RankState> states = states_of(job, analysis.roles, analysis.clusters, families);
  analysis.activities = activities_of(job, states);
  const MissingRanks missing = missing_ranks(job);
  const std::vector<PendingOperation> operations = pending_operations(job, states, missing);
  analysis.waits = WaitGraph(job, states, operations);
  const Facts facts{job, families, analysis.roles, states, operations, analysis.waits, missing};
  analysis.verdict = judge(facts);
  analysis.verdict.chains = chains_of(analysis.waits, analysis.verdict.suspects);
  if (analysis.verdict.status == VerdictStatus::kUndecided && analysis.verdict.candidates.empty())
    analysis.verdict.candidates = candidates_of(facts);
  analysis.differences = std::move(differences);
  mention_differences(job, analysis.differences, analysis.verdict);
  return analysis;
}

}  // namespace rankstacks::analyzers
