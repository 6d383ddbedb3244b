// Asks NCCL's RAS about the communicators of the captured processes: right before the first of them is stopped, because
// a stopped process does not answer, and once more after the last sample.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "nccl/job_status.h"
#include "nccl/ras.h"
#include "target/live_target.h"
#include "target/socket_tables.h"

namespace rankstacks::capture {

class NcclCounts {
 public:
  // Called for every process before any of them is stopped; ignores processes without NCCL.
  void add(const target::LiveTarget& target, const std::string& host,
           const std::map<std::string, std::string>& environment);

  // Each takes at most 1 s. They ask only if a socket of one of the processes listens, and accept only an answer that
  // comes from one of them and agrees with /proc. It is no problem if none of them listens (RAS can be turned off), or
  // if an answer is about other processes only.
  // `sockets`: which sockets there are. Returns whether anything was asked: then some time has passed.
  bool ask_first(target::SocketTables& sockets);
  void ask_again();

  std::optional<NcclStatus> status;
  // Why there is no status. To be reported at `troubled`, the first process with NCCL.
  std::optional<Problem> problem;
  Pid troubled = 0;

 private:
  std::vector<std::string> listening(target::SocketTables& sockets) const;
  Result<NcclStatus> ask(const std::vector<std::string>& places) const;

  std::vector<nccl::NcclProcess> processes_;  // those in the network namespace of the first one
  std::vector<Pid> pids_;                     // their pids in the tool's pid namespace
  nccl::RasAddress address_;
  bool can_ask_ = false;
};

}  // namespace rankstacks::capture
