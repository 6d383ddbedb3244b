// /proc/PID/status and the process's namespaces, as far as they decide permissions: proc(5), capabilities(7),
// namespaces(7).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "doctor/system.h"

namespace rankstacks::doctor {

struct ProcessStatus {
  std::string name;
  char state = 0;
  std::array<unsigned, 3> uids{}, gids{};      // real, effective, saved
  std::uint64_t effective = 0, permitted = 0;  // capabilities
  int seccomp = 0;                             // 0 none, 1 strict, 2 filter
  Pid tracer = 0;                              // 0: none
  Pid process = 0;                             // the process that this thread belongs to (Tgid); 0: not given
  std::vector<Pid> pids;                       // NSpid: from /proc's pid namespace inwards
  std::uint64_t resident = 0;                  // bytes
};

ProcessStatus parse_status(std::string_view text);

struct Namespaces {
  std::optional<std::string> user, pid, mount;  // "user:[4026531837]"; std::nullopt: may not be read
};
Namespaces namespaces_of(const System& system, const std::string& process);  // "self" or a number

// Numbers of the namespaces that the machine was booted with: Linux include/linux/proc_ns.h, PROC_USER_INIT_INO and
// PROC_PID_INIT_INO.
inline constexpr std::string_view kFirstUserNamespace = "user:[4026531837]";
inline constexpr std::string_view kFirstPidNamespace = "pid:[4026531836]";

// linux/capability.h
inline constexpr unsigned kCapSysPtrace = 19, kCapSysAdmin = 21, kCapSysResource = 24, kCapCheckpointRestore = 40;
inline bool has_capability(std::uint64_t set, unsigned capability) { return (set >> capability & 1) != 0; }
// "CAP_SYS_PTRACE, CAP_SYS_ADMIN and 3 more"
std::string capability_names(std::uint64_t set);

}  // namespace rankstacks::doctor
