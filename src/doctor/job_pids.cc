#include "doctor/job_pids.h"

#include <fmt/format.h>
#include <unistd.h>

#include "capture/job_processes.h"
#include "target/proc.h"

namespace rankstacks::doctor {

std::vector<Pid> pids_of(const LiveRequest& request) {
  const ProcessTable table = ProcessTable::scan();
  // The environment that a process was started with suffices: a process that was given its rank later is a descendant
  // of one named here, and all descendants are taken. A shell that waits for a rank is checked too, which does no harm.
  const ProcessFacts facts{[](Pid pid) {
                             const auto text = proc::read_file(fmt::format("/proc/{}/environ", pid));
                             return text ? proc::parse_environment(proc::split_nul(*text)) : std::map<std::string, std::string>{};
                           },
                           [](Pid) { return false; }};
  std::vector<Pid> pids;
  for (const PlannedTarget& t : request.whole_job ? plan_job(table, facts, getpid()) : plan_pids(request.pids, table, facts, getpid())) pids.push_back(t.pid);
  return pids;
}

}  // namespace rankstacks::doctor
