// The ends of processes that the kernel's log records: kills for lack of memory, and faults that were not handled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/kernel_kill.h"

namespace rankstacks::target {

struct LoggedKill {
  std::uint64_t since_boot_us = 0;  // of the clock of the log, which stops while the machine sleeps
  KernelKill kill;                  // without host and time
};

// A record of /dev/kmsg, "PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT\n KEY=VALUE..." (Linux, Documentation/ABI/testing/
// dev-kmsg); std::nullopt: it tells of no such end. The texts are those of mm/oom_kill.c, arch/x86/mm/fault.c and
// arch/x86/kernel/traps.c.
std::optional<LoggedKill> parse_kernel_record(std::string_view record);

// Those in /dev/kmsg, oldest first; only root or CAP_SYSLOG may read it where kernel.dmesg_restrict is 1.
Result<std::vector<LoggedKill>> read_kernel_log(const std::string& path = "/dev/kmsg");

}  // namespace rankstacks::target
