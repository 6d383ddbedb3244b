#include "doctor/job_pids.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/unattended.h"
#include "capture/job_plan.h"
#include "capture/job_processes.h"
#include "capture/preparer.h"
#include "target/proc.h"

namespace rankstacks::doctor {
namespace {

// The environment that a process was started with suffices: a process that was given its rank later is a descendant of
// one named here, and all descendants are taken. A shell that waits for a rank is checked too, which does no harm.
std::vector<capture::PlannedTarget> plan_named(const std::vector<Pid>& pids, const capture::ProcessTable& table) {
  const capture::ProcessFacts facts{[](Pid pid) {
                                      const auto text = target::proc::read_file(fmt::format("/proc/{}/environ", pid));
                                      return text ? target::proc::parse_environment(target::proc::split_nul(*text))
                                                  : std::map<std::string, std::string>{};
                                    },
                                    [](Pid) { return false; }};
  return capture::plan_pids(pids, table, facts, getpid());
}

}  // namespace

tl::expected<std::vector<Pid>, capture::NotChosen> pids_of(const capture::LiveRequest& request) {
  const capture::ProcessTable table = capture::ProcessTable::scan();
  std::vector<capture::PlannedTarget> targets;
  if (request.job) {
    capture::Preparer preparer(table, kMinTimeout);
    capture::LivePlan plan = plan_live(request, table, preparer);
    if (plan.not_chosen) return tl::make_unexpected(std::move(*plan.not_chosen));
    targets = std::move(plan.targets);
  } else {
    targets = plan_named(request.pids, table);
  }
  std::vector<Pid> pids;
  for (const capture::PlannedTarget& target : targets) pids.push_back(target.pid);
  return pids;
}

}  // namespace rankstacks::doctor
