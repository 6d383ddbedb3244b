#include "analyzers/analysis.h"

#include "analyzers/candidates.h"
#include "analyzers/facts.h"
#include "analyzers/rank_activity.h"

namespace rankstacks::analyzers {

Analysis analyze(const JobSnapshot& job) {
  Analysis analysis;
  analysis.roles = assign_roles(job);
  analysis.clusters = cluster_threads(job, analysis.roles);
  analysis.cluster_of.resize(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) analysis.cluster_of[r].assign(job.ranks[r].threads.size(), -1);
  for (const Cluster& cluster : analysis.clusters)
    for (const auto& [rank, thread] : cluster.members) analysis.cluster_of[rank][thread] = cluster.id;
  const std::vector<RankState> states = states_of(job, analysis.roles, analysis.clusters);
  analysis.activities = activities_of(job, states);
  const std::vector<PendingOperation> operations = pending_operations(job, states);
  analysis.waits = WaitGraph(job, states, operations);
  const Facts facts{job, analysis.roles, states, operations, analysis.waits};
  analysis.verdict = judge(facts);
  analysis.verdict.chains = chains_of(analysis.waits, analysis.verdict.suspects);
  if (analysis.verdict.status == VerdictStatus::kUndecided) analysis.verdict.candidates = candidates_of(facts);
  return analysis;
}

}  // namespace rankstacks::analyzers
