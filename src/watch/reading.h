// What is read of a job's processes in each period, without touching them: counters that the kernel keeps anyway.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"

namespace rankstacks::watch {

// Totals since the process has started.
struct Counters {
  double cpu_ms = 0;       // of all its threads: /proc/PID/stat
  std::int64_t runs = 0;   // how often its threads were given a processor: /proc/PID/task/TID/schedstat
  double waited_ms = 0;    // for how long its threads were ready to run, until they were given one: the same file
  bool is_ready = false;   // its main thread is ready to run, or runs, at this moment
  std::int64_t reads = 0;  // calls of read(2) and the like, and of write(2): /proc/PID/io. 0: not permitted
  std::int64_t writes = 0;
  std::int64_t bytes = 0;  // that these calls have moved, logs and pipes included
};

struct ProcessReading {
  Pid pid = 0;
  std::uint64_t start_ticks = 0;
  std::size_t rank = 0;  // index of its rank among the job's; a child counts for its rank
  bool is_rank = true;   // the rank itself
  bool ended = false;    // gone, or a zombie
  bool is_new = false;   // it has started since the reading before
  Counters counters;
};

using Seconds = std::chrono::duration<double>;

struct Reading {
  Seconds at{};  // of a clock that does not jump
  std::size_t ranks = 0;
  std::vector<ProcessReading> processes;
};

// What a rank and its children have done from one reading to the next, in a second.
struct Rates {
  bool alive = true;
  double cpu = 0;  // processors
  double runs = 0, reads = 0, writes = 0, bytes = 0;
  double waited = 0;      // threads that were ready to run, and had no processor
  bool is_ready = false;  // a main thread was ready to run at the beginning, and is at the end
};

// One for each rank. A process that is in one of the readings only counts from its start if it is new, and else not at
// all; counters that went back (threads that have ended) count as 0.
std::vector<Rates> rates_between(const Reading& before, const Reading& after);

}  // namespace rankstacks::watch
