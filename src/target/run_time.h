// How long threads have run, to the nanosecond: this distinguishes waiting from working without stopping anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/types.h"

namespace rankstacks::target {

struct RunTime {
  double cpu_ms = 0;
  std::int64_t runs = 0;  // how often it was given a processor
  double waited_ms = 0;   // ready to run, until it was given one
};

// /proc/PID/task/TID/schedstat: "nanoseconds on a processor, nanoseconds waiting for one, times run"
// (Documentation/scheduler/sched-stats).
std::optional<RunTime> parse_schedstat(std::string_view text);
// std::nullopt if the thread is gone, or if the kernel does not count (CONFIG_SCHED_INFO).
std::optional<RunTime> run_time_of(Pid pid, Tid tid);

}  // namespace rankstacks::target
