// Why a process may not be attached to: the first support question. Each answer is determined from the system, not
// guessed.
#include <fmt/format.h>
#include <unistd.h>
#include <cerrno>

#include "base/unattended.h"
#include "target/live_target.h"

namespace rankstacks::target {
namespace {

std::string command_name(Pid pid) {
  const auto stat = proc::stat_of(pid);
  return stat ? stat->name : "?";
}

}  // namespace

std::optional<Error> not_a_target(Pid pid) {
  Error e{.code = ErrorCode::kUsage, .subject = fmt::format("pid {}", pid)};
  const auto process = proc::process_of(pid);
  if (!process) return std::nullopt;
  if (*process == tool_pid()) {
    e.what = "this is rankstacks itself, which cannot look at itself";
    e.hint = "name the processes of the job: --pids, or --job";
    return e;
  }
  if (*process == pid) return std::nullopt;
  e.what = fmt::format("a thread of process {} ({}), not a process", *process, command_name(*process));
  e.hint = fmt::format("name the process: --pids {}", *process);
  return e;
}

Error attach_error(Pid pid, int os_errno) {
  if (auto reason = not_a_target(pid)) return *reason;
  Error e{.code = ErrorCode::kUnreadable,
          .subject = fmt::format("pid {}", pid),
          .what = "cannot be attached to",
          .os_errno = os_errno};
  const auto stat = proc::stat_of(pid);
  if (!stat) {
    e.code = ErrorCode::kGone;
    e.what = "no such process";
    e.os_errno = 0;
    e.hint =
        "it may have ended, or the pid belongs to another pid namespace (a container): use the number that `ps` shows "
        "on this machine";
    return e;
  }
  if (stat->kernel_thread()) {
    e.code = ErrorCode::kUnsupported;
    e.what = fmt::format("a kernel thread ({}), which has no stack of its own to show", stat->name);
    e.os_errno = 0;
    e.hint = fmt::format("its kernel stack: cat /proc/{}/stack", pid);
    return e;
  }
  // This tool's own threads trace the process during a sample; that they do explains nothing.
  if (const auto tracer = proc::status_number(pid, "TracerPid");
      tracer && *tracer != 0 && proc::process_of(static_cast<Tid>(*tracer)) != tool_pid()) {
    e.code = ErrorCode::kPermission;
    e.what = fmt::format("already traced by pid {} ({})", *tracer, command_name(static_cast<Pid>(*tracer)));
    e.hint = "only one tracer is possible: end or detach that one first";
    return e;
  }
  if (stat->state == 'Z' || stat->state == 'X') {
    e.code = ErrorCode::kGone;
    e.what = "a zombie: it has ended, and its parent has not collected its exit status";
    e.os_errno = 0;
    e.hint = fmt::format("its parent is pid {} ({})", stat->parent, command_name(stat->parent));
    return e;
  }
  if (os_errno == EPERM || os_errno == EACCES) {
    e.code = ErrorCode::kPermission;
    const auto uid = proc::status_number(pid, "Uid");
    if (uid && static_cast<uid_t>(*uid) != geteuid() && geteuid() != 0) {
      e.what = fmt::format("cannot be attached to: it belongs to uid {}, this is uid {}", *uid, geteuid());
      e.hint = "run rankstacks as that user or as root";
      return e;
    }
    const auto scope = proc::read_file("/proc/sys/kernel/yama/ptrace_scope");
    if (scope && !scope->empty() && scope->front() != '0' && geteuid() != 0) {
      e.hint = fmt::format("kernel.yama.ptrace_scope is {}: run as root, or `sysctl kernel.yama.ptrace_scope=0`",
                           scope->front());
    } else {
      e.hint =
          "CAP_SYS_PTRACE is needed: in a container, start it with `--cap-add=SYS_PTRACE` (docker, podman) or "
          "securityContext.capabilities.add: [SYS_PTRACE], or run rankstacks as root on the machine itself";
    }
    e.hint += fmt::format("; `rankstacks doctor --pids {}` shows what refuses", pid);
  } else if (os_errno == ENOSYS) {
    e.hint = fmt::format("a system call filter, or this sandbox, has no ptrace: `rankstacks doctor --pids {}`", pid);
  }
  return e;
}

}  // namespace rankstacks::target
