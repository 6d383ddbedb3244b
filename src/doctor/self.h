// This tool's own rights and surroundings on the machine: read once, used by every check.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/process_status.h"
#include "doctor/system.h"

namespace rankstacks::doctor {

struct ContainerMarks {
  std::vector<std::string> marks;  // what was seen: "/.dockerenv", "kubepods in /proc/self/cgroup"
  bool docker = false, podman = false, kubernetes = false, other = false;
  bool any() const { return !marks.empty(); }
};

struct Self {
  ProcessStatus status;
  Namespaces namespaces;
  ContainerMarks container;
  std::optional<int> yama_scope;  // std::nullopt: this kernel has no Yama
  Trial trial;

  bool can_trace_all() const { return has_capability(status.effective, kCapSysPtrace); }
  bool own_user_namespace() const { return namespaces.user && *namespaces.user != kFirstUserNamespace; }
  bool own_pid_namespace() const { return namespaces.pid && *namespaces.pid != kFirstPidNamespace; }
  // Whether a filter kills the process that makes an attach's calls: then they are made in a process of their own, or
  // not at all.
  bool filter_kills() const { return trial.killed_by != 0 && status.seccomp != 0; }
  bool yama_refuses() const { return yama_scope && *yama_scope > 0 && (*yama_scope >= 3 || !can_trace_all()); }
};

Self read_self(const System& system);

// How to give this tool the right to trace: in a container by a flag of its engine, else as root.
std::vector<std::string> mends_for_ptrace(const Self& self);

// "sysctl SETTING", as it must be given here: such settings are the machine's, not a container's.
std::string sysctl(const Self& self, const std::string& setting);

// The commands against Yama, then those of mends_for_ptrace().
std::vector<std::string> mends_for_yama(const Self& self);

// The same as mends_for_ptrace(), without the container's system call filter.
std::vector<std::string> mends_for_seccomp(const Self& self);

}  // namespace rankstacks::doctor
