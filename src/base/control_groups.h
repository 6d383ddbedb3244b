// Where the control group of a process is among the mounted hierarchies.
//
// Sources: cgroups(7) for /proc/PID/cgroup ("4:cpu,memory:/a/b", "0::/a/b"); proc(5) for mountinfo ("ID PARENT DEVICE
// ROOT POINT OPTIONS ... - TYPE SOURCE SUPER"), whose names have \ooo for blanks (Linux fs/proc_namespace.c, mangle()).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks {
inline namespace base {

struct ControlGroup {
  std::string mount;      // the mount point, without a slash at its end
  std::string directory;  // the group's, below it
  // Whether the mounted part of the hierarchy contains the group. If not, `directory` is a guess: in a container the
  // path may be given as seen from outside.
  bool is_visible = true;

  // The group's and those of the groups around it, innermost first; the last one is the mount point.
  std::vector<std::string> directories() const;
};

// By the texts of /proc/PID/cgroup and /proc/self/mountinfo: in the hierarchy of version 2, or in that of version 1
// with this controller. std::nullopt: the process is in none, or it is not mounted.
std::optional<ControlGroup> control_group_v2(std::string_view cgroups, std::string_view mountinfo);
std::optional<ControlGroup> control_group_v1(std::string_view cgroups, std::string_view mountinfo,
                                             std::string_view controller);

}  // namespace base
}  // namespace rankstacks
