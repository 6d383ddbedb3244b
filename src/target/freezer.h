// Whether the kernel keeps a process from running because its control group is frozen: `docker pause`, `systemctl
// freeze`, Slurm's suspension of a job, a checkpoint. A thread that is frozen looks like one that waits: version 2
// shows it in state S, version 1 in state D.
//
// Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst (cgroup.freeze, cgroup.events) and cgroup-v1/
// freezer-subsystem.rst (freezer.state, freezer.self_freezing); proc(5) for mountinfo; cgroups(7) for /proc/PID/cgroup.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "model/problem.h"

namespace rankstacks::target {

struct Freeze {
  int version = 2;
  // Whether all threads of the group are frozen. If not, some of them have not come to where the kernel freezes them.
  bool is_complete = false;
  std::string group;  // its directory
  // The files that say so, of the group and of those around it. Empty: of a group that is not visible from here.
  std::vector<std::string> switches;

  // Whether ptrace stops its threads. In version 1, PTRACE_INTERRUPT wakes none of them, and PTRACE_SEIZE of one that a
  // signal has stopped may wait until the group is thawed.
  bool can_be_stopped() const { return version != 1; }
};

// By the texts of /proc/PID/cgroup and /proc/self/mountinfo, and by files of the groups below the mounts named there.
// std::nullopt: it is not frozen, or that is not known.
std::optional<Freeze> freeze_of(std::string_view cgroups, std::string_view mountinfo);

// Of the group that the thread is in. Reads nothing of the process's memory, and waits for none.
std::optional<Freeze> freeze_of(Pid pid, Tid tid);

// Whether a thread is in the same groups as another one of its process.
bool has_groups_of(Pid pid, Tid tid, Tid other);

Problem problem_of(const Freeze& freeze);

}  // namespace rankstacks::target
