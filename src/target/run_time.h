// How long threads have run, to the nanosecond: this distinguishes waiting from working without stopping anything.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/file_descriptor.h"
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

// A thread's schedstat that stays open, for those who read it again: that is one system call, while opening and closing
// it take several times as long. nullptr: it cannot be opened, or an eighth of the descriptors that this process may
// have (RLIMIT_NOFILE) are such files. `path` is relative to `directory` (openat(2)).
std::shared_ptr<const FileDescriptor> open_schedstat(int directory, const char* path);
// std::nullopt as for run_time_of: the file of a thread that is gone is not that of another with its tid.
std::optional<RunTime> read_schedstat(const FileDescriptor& schedstat);

}  // namespace rankstacks::target
