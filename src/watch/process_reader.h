// Reads the counters of the watched processes from /proc. None of these files waits for the process or touches its
// memory; each process is read through a descriptor of its own directory, which another process with its pid is not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/file_descriptor.h"
#include "base/types.h"
#include "target/run_time.h"
#include "watch/reading.h"

namespace rankstacks::watch {

struct WatchedProcess {
  Pid pid = 0;
  std::uint64_t start_ticks = 0;  // 0: not known; then it is that of the process that has the pid now
};

// How a process has ended.
enum class End { kLives, kUnknown, kNormally, kFailed };

class ProcessReader {
 public:
  // Adds a rank, unless it is one already. Its index is the number of those before it.
  void add_rank(const WatchedProcess& rank);
  std::size_t ranks() const { return ranks_; }
  const std::vector<WatchedProcess>& processes_of_ranks() const { return rank_processes_; }

  // Finds all descendants of the ranks, in one pass over /proc.
  void find_children();

  Reading read();

  // Of a rank: a zombie shows its exit status to its own user until it is reaped.
  End end_of(std::size_t rank) const;
  // A pidfd of each rank, which becomes readable at its end; not open where the kernel has none (before Linux 5.3).
  const FileDescriptor& end_descriptor(std::size_t rank) const { return ends_[rank]; }

 private:
  struct Thread {
    std::shared_ptr<const FileDescriptor> schedstat;
    target::RunTime time;     // when it was read last
    std::size_t not_run = 0;  // readings in a row
  };
  struct Process {
    WatchedProcess id;
    std::size_t rank = 0;
    bool is_rank = true, is_new = false, ended = false;
    FileDescriptor directory;  // /proc/PID
    // The threads of the last reading, without those of which the schedstat could not be kept open.
    std::map<Tid, Thread> threads;
    std::size_t readings = 0;
  };
  void open(WatchedProcess id, std::size_t rank, bool is_rank, bool is_new);
  static void list_threads(Process& process, Counters& counters);
  static bool read_same_threads(Process& process, std::size_t number, Counters& counters);
  static bool read_counters(Process& process, Counters& counters);

  std::vector<Process> processes_;
  std::vector<WatchedProcess> rank_processes_;
  std::vector<FileDescriptor> ends_;
  std::size_t ranks_ = 0;
  std::uint64_t last_read_ticks_ = 0;  // since boot, of the last reading
};

}  // namespace rankstacks::watch
