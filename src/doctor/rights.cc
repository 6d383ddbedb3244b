// The rights that an attach needs. The two trials come first because they decide; the findings after them say why.
#include <fmt/format.h>
#include <cerrno>
#include <cstring>

#include "doctor/machine_checks.h"

namespace rankstacks::doctor {
namespace {

constexpr Area kArea = Area::kAttach;

Finding check_ptrace(const Self& self) {
  const Trial& trial = self.trial;
  if (!trial.not_run.empty())
    return problem("ptrace", kArea, fmt::format("could not be tried: {}", trial.not_run),
                   {"raise the limit on processes: ulimit -u"});
  if (trial.killed_by != 0)
    return problem("ptrace", kArea,
                   fmt::format("the process that tried it was killed by signal {} ({})", trial.killed_by,
                               strsignal(trial.killed_by)),
                   mends_for_seccomp(self));
  if (trial.seize == 0) return ok("ptrace", kArea, "tried on a process of its own: it can be seized");
  const bool explained = trial.filtered() || self.yama_refuses();
  return problem("ptrace", kArea, fmt::format("tried on a process of its own: {}", std::strerror(trial.seize)),
                 explained ? std::vector<std::string>{} : mends_for_ptrace(self));
}

Finding check_memory(const Self& self) {
  const Trial& trial = self.trial;
  if (!trial.not_run.empty() || trial.killed_by != 0) return note("memory", kArea, "process_vm_readv was not tried");
  if (trial.read == 0) return ok("memory", kArea, "tried: process_vm_readv reads it");
  const bool explained = trial.seize != 0;
  return problem("memory", kArea, fmt::format("tried: process_vm_readv: {}", std::strerror(trial.read)),
                 explained ? std::vector<std::string>{} : mends_for_seccomp(self));
}

Finding check_capabilities(const Self& self) {
  if (self.can_trace_all()) {
    return ok("capabilities", kArea,
              self.own_user_namespace() ? "CAP_SYS_PTRACE, in this user namespace: its processes of every user"
                                        : "CAP_SYS_PTRACE: processes of every user");
  }
  return note(
      "capabilities", kArea,
      fmt::format(
          "no CAP_SYS_PTRACE: processes of uid {} alone, and only those that have no more rights than this tool",
          self.status.uids[0]),
      mends_for_ptrace(self));
}

Finding check_yama(const Self& self) {
  if (!self.yama_scope) return ok("yama", kArea, "this kernel has no kernel.yama.ptrace_scope");
  const std::string scope = fmt::format("kernel.yama.ptrace_scope is {}", *self.yama_scope);
  if (*self.yama_scope == 0) return ok("yama", kArea, scope);
  if (*self.yama_scope >= 3)
    return problem("yama", kArea, scope + ": nobody may trace, root included, until the machine is booted again",
                   {"set kernel.yama.ptrace_scope=0 in /etc/sysctl.d and boot"});
  if (self.can_trace_all()) return ok("yama", kArea, scope + ": with CAP_SYS_PTRACE every process may be traced");
  if (self.trial.not_run.empty() && self.trial.killed_by == 0 && self.trial.seize == 0)
    return ok("yama", kArea, scope + ", and yet the trial was allowed");
  const char* who = *self.yama_scope == 1 ? ": without CAP_SYS_PTRACE only a process's own ancestors may trace it"
                                          : ": only CAP_SYS_PTRACE may trace";
  return problem("yama", kArea, scope + who, mends_for_yama(self));
}

Finding check_seccomp(const Self& self) {
  if (self.filter_kills())
    return problem("seccomp", kArea, "a system call filter kills the process that calls ptrace or process_vm_readv",
                   mends_for_seccomp(self));
  if (self.trial.filtered()) {
    std::string calls;
    if (self.trial.seize_nobody != ESRCH) calls = fmt::format("ptrace ({})", std::strerror(self.trial.seize_nobody));
    if (self.trial.read_nobody != ESRCH)
      calls +=
          fmt::format("{}process_vm_readv ({})", calls.empty() ? "" : " and ", std::strerror(self.trial.read_nobody));
    return problem("seccomp", kArea, fmt::format("a system call filter refuses {}", calls), mends_for_seccomp(self));
  }
  if (self.status.seccomp == 0) return ok("seccomp", kArea, "no system call filter");
  if (!self.trial.not_run.empty())
    return note("seccomp", kArea, "a system call filter; whether it lets ptrace through was not tried");
  return ok("seccomp", kArea, "a system call filter, which lets ptrace and process_vm_readv through (tried)");
}

Finding check_map_files(const Self& self) {
  const Trial& trial = self.trial;
  if (!trial.not_run.empty() || trial.killed_by != 0)
    return note("mapped-files", Area::kNames, "/proc/PID/map_files was not tried");
  if (trial.map_files == 0)
    return ok("mapped-files", Area::kNames,
              "tried: /proc/PID/map_files opens; deleted and replaced libraries can be read");
  std::vector<std::string> mends = mends_for_ptrace(self);
  if (self.container.any()) {
    for (std::string& mend : mends) {
      if (const auto at = mend.find("SYS_PTRACE"); at != std::string::npos) mend.replace(at, 10, "CHECKPOINT_RESTORE");
    }
  }
  return note(
      "mapped-files", Area::kNames,
      fmt::format(
          "tried: /proc/PID/map_files: {} (it wants CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN): of libraries deleted or "
          "replaced since they were loaded, "
          "only the exported names are there",
          std::strerror(trial.map_files)),
      mends);
}

}  // namespace

std::vector<Finding> check_rights(const Self& self) {
  return {check_ptrace(self), check_memory(self),  check_capabilities(self),
          check_yama(self),   check_seccomp(self), check_map_files(self)};
}

}  // namespace rankstacks::doctor
