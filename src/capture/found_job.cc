#include "capture/found_job.h"

#include <utility>

#include "capture/job_plan.h"

namespace rankstacks::capture {

FoundJob find_job(const LiveRequest& request, std::chrono::steady_clock::duration limit,
                  std::chrono::steady_clock::duration silence) {
  const ProcessTable table = table_for(request);
  Preparer preparer(table, limit, silence);
  LivePlan plan = plan_live(request, table, preparer);
  FoundJob job;
  job.not_chosen = std::move(plan.not_chosen);
  std::vector<Pid> pids;
  for (const PlannedTarget& target : plan.targets) pids.push_back(target.pid);
  std::vector<std::vector<std::string>> commands = preparer.commands(pids);
  for (std::size_t i = 0; i < plan.targets.size(); ++i) {
    const PlannedTarget& target = plan.targets[i];
    const ProcessEntry* entry = table.find(target.pid);
    FoundProcess process{.pid = target.pid,
                         .kind = target.kind,
                         .rank = target.identity.rank,
                         .start_ticks = entry == nullptr ? 0 : entry->start_ticks,
                         .environment = {},
                         .command = {}};
    if (target.kind == RankKind::kRank) {
      process.environment = preparer.environment(target.pid);
      process.command = std::move(commands[i]);
    }
    job.processes.push_back(std::move(process));
  }
  return job;
}

}  // namespace rankstacks::capture
