// Why the kernel refused to let this tool trace a process: the conditions of ptrace(2), "Ptrace access mode checking",
// each looked up.
#pragma once

#include <string>
#include <vector>

#include "doctor/process_status.h"
#include "doctor/self.h"

namespace rankstacks::doctor {

struct Refusal {
  std::string why;
  std::vector<std::string> mends;
};

Refusal explain_refusal(const System& system, const Self& self, Pid pid, const ProcessStatus& target);

// Whether it is a user's process whose entries in /proc belong to root: so after prctl(PR_SET_DUMPABLE, 0), or after a
// change of its user (proc(5)). For root's own processes this cannot be known.
bool known_not_dumpable(const System& system, Pid pid, const ProcessStatus& target);

}  // namespace rankstacks::doctor
