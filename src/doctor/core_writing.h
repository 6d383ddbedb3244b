// Where the kernel puts the core of a process that dies, and what would be missing in it: core(5).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/self.h"
#include "doctor/system.h"

namespace rankstacks::doctor {

struct CorePattern {
  enum class Kind { kUnknown, kFile, kPipe, kSocket, kNowhere } kind = Kind::kUnknown;
  std::string text;
  std::string program;  // of a pipe: its path
  // systemd-coredump and apport keep no core of a process whose limit is 0; the kernel itself ignores the limit when it
  // pipes.

  bool obeys_limit = false;
};
CorePattern read_core_pattern(const System& system);

struct CoreDestination;  // core_size.h

std::vector<Finding> check_core_pattern(const System& system, const Self& self, const CorePattern& pattern,
                                        const CoreDestination& destination);

struct CoreLimit {
  std::optional<std::uint64_t> soft, hard;  // bytes; std::nullopt: unlimited
};
std::optional<CoreLimit> parse_core_limit(std::string_view limits);  // of /proc/PID/limits

// The limit of this tool, which jobs started from the same shell inherit.
Finding check_own_core_limit(const System& system, const Self& self, const CorePattern& pattern);

// Checks of the core that this process would leave.
std::vector<Finding> check_core_of(const System& system, const Self& self, const CorePattern& pattern, Pid pid,
                                   const ProcessStatus& status, const CoreDestination& destination);

}  // namespace rankstacks::doctor
