#include "doctor/job_pids.h"

#include <fmt/format.h>
#include <unistd.h>

#include "capture/job_processes.h"
#include "target/proc.h"

namespace rankstacks::doctor {

std::vector<Pid> pids_of(const capture::LiveRequest& request) {
  const capture::ProcessTable table = capture::ProcessTable::scan();
  // The environment that a process was started with suffices: a process that was given its rank later is a descendant
  // of one named here, and all descendants are taken. A shell that waits for a rank is checked too, which does no harm.
  const capture::ProcessFacts facts{[](Pid pid) {
                                      const auto text = target::proc::read_file(fmt::format("/proc/{}/environ", pid));
                                      return text ? target::proc::parse_environment(target::proc::split_nul(*text))
                                                  : std::map<std::string, std::string>{};
                                    },
                                    [](Pid) { return false; }};
  std::vector<Pid> pids;
  for (const capture::PlannedTarget& t : request.whole_job ? capture::plan_job(table, facts, getpid())
                                                           : capture::plan_pids(request.pids, table, facts, getpid()))
    pids.push_back(t.pid);
  return pids;
}

}  // namespace rankstacks::doctor
