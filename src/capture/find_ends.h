// Finds the processes at the other end of what threads are blocked on, by /proc and sock_diag(7), while all processes
// run. The job's own processes are searched first; all other processes of the machine are searched only for ends that
// were not found there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "target/awaited.h"
#include "target/socket_tables.h"

namespace rankstacks::capture {

struct BlockedThread {
  Pid pid = 0;
  Tid tid = 0;
  target::Awaited awaited;
};

struct FoundEnds {
  EndKind kind = EndKind::kPipe;
  std::vector<Pid> others;  // as SyscallInfo::others
  bool own_end = false;
  std::optional<std::string> other_host;
  std::string database;  // as SyscallInfo::database
  bool listens = false;  // as SyscallInfo::listens
};

// Returns the ends found for each thread. Sockets are looked up in the given tables, and, if they are not there, in new
// ones. Should be called by a worker that can be given up (base/unattended.h).
std::vector<FoundEnds> find_ends(const std::vector<BlockedThread>& threads, const std::vector<Pid>& job,
                                 target::SocketTables& sockets);

}  // namespace rankstacks::capture
