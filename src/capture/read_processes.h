// Reads the processes of a sample, in parallel, stopping as few of their threads as --stop allows.
//
//     read()          no thread is stopped that does not run (target/still_threads.h)
//     unwind_ranks()  shows which stacks need registers that only a stop shows
//     read_again()    the processes of these once more, with those threads stopped; their stacks are unwound again
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/capture_job.h"
#include "capture/rank_stacks.h"
#include "target/live_target.h"
#include "target/socket_tables.h"

namespace rankstacks::capture {

// The processes to read, one entry for each.
struct LiveRanks {
  explicit LiveRanks(std::size_t count) : ranks(count), targets(count), interpreters(count) {}
  std::vector<RankStacks> ranks;
  std::vector<target::LiveTarget*> targets;  // owned by ranks[i].target; nullptr: failed
  std::vector<const std::vector<python::RuntimeCandidate>*> interpreters;
};

class ProcessReader {
 public:
  ProcessReader(const CaptureOptions& options, target::StopPolicy policy) : options_(options), policy_(policy) {}

  // Afterwards targets[i] is nullptr if that failed for process i; then the rank has the reason. Sockets are looked up
  // in these tables.
  void read(LiveRanks& live, target::SocketTables& sockets);

  // After unwind_ranks(): the processes with a stack that needs registers which only a stop tells. The threads that
  // have to be stopped for that are stopped at once in later samples.
  std::vector<std::size_t> to_read_again(const LiveRanks& live);
  // Reads and unwinds these, with the tables of the first reading.
  void read_again(LiveRanks& live, const std::vector<std::size_t>& which, target::SocketTables& sockets);

 private:
  void read_one(LiveRanks& live, std::size_t i, const target::CopyLimits& limits, target::SocketTables& sockets,
                target::SocketTables& newer) const;
  void read_all(LiveRanks& live, const std::vector<std::size_t>& which, target::SocketTables& sockets) const;

  const CaptureOptions& options_;
  target::StopPolicy policy_;
  std::unordered_map<Pid, std::unordered_set<Tid>> needed_;
};

}  // namespace rankstacks::capture
