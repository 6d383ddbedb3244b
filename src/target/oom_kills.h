// How many processes of a process's control group the kernel has killed for lack of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace rankstacks::target {

// The files that may have the count, by the text of /proc/PID/cgroup: memory.events of version 2,
// memory.oom_control of version 1.
std::vector<std::string> oom_count_files(std::string_view cgroups);

// The number after "oom_kill" in such a file; std::nullopt: none (before Linux 4.13).
std::optional<std::uint64_t> parse_oom_kills(std::string_view text);

// Since the group was made, its subgroups included in version 2. std::nullopt: not known.
std::optional<std::uint64_t> oom_kills_of(Pid pid);

}  // namespace rankstacks::target
