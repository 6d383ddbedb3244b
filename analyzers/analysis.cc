#include "analyzers/analysis.h"

#include "analyzers/candidates.h"
#include "analyzers/rank_activity.h"
#include "analyzers/standing.h"
#include "analyzers/waits.h"

namespace rankstacks {

Analysis analyze(const JobSnapshot& job) {
  Analysis analysis;
  analysis.roles = assign_roles(job);
  analysis.clusters = cluster_threads(job, analysis.roles);
  analysis.cluster_of.resize(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) analysis.cluster_of[r].assign(job.ranks[r].threads.size(), -1);
  for (const Cluster& cluster : analysis.clusters)
    for (const auto& [rank, thread] : cluster.members) analysis.cluster_of[rank][thread] = cluster.id;
  const std::vector<Standing> standings = standings_of(job, analysis.roles, analysis.clusters);
  analysis.activities = activities_of(job, standings);
  const Waits waits(job, standings);
  analysis.verdict = judge(job, analysis.roles, standings, waits);
  analysis.waits = WaitGraph(job, standings, waits);
  analysis.verdict.chains = chains_of(analysis.waits, analysis.verdict.suspects);
  if (analysis.verdict.status == VerdictStatus::kUndecided) analysis.verdict.candidates = candidates_of(job, standings, waits);
  return analysis;
}

}  // namespace rankstacks
