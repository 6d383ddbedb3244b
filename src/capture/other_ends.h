// Fills in which processes the blocked system calls of captured processes wait for: SyscallInfo::others, own_end,
// database, other_host. Runs after the stop, while the processes run. Processes that do not answer in time are left
// out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/rank_stacks.h"
#include "target/socket_tables.h"

namespace rankstacks::capture {

// The search runs on a thread of its own, while the caller unwinds the same ranks. What does not answer in time is left
// out.
class OtherEndsSearch {
 public:
  // Begins it. `sockets`: the tables that the capture has read; shared, because a worker that is left behind may still
  // use them.
  OtherEndsSearch(const std::vector<RankStacks>& ranks, std::shared_ptr<target::SocketTables> sockets);
  // The same for some of the ranks: those that were read once more.
  OtherEndsSearch(const std::vector<RankStacks>& ranks, const std::vector<std::size_t>& which,
                  std::shared_ptr<target::SocketTables> sockets);
  OtherEndsSearch(const OtherEndsSearch&) = delete;
  OtherEndsSearch& operator=(const OtherEndsSearch&) = delete;
  ~OtherEndsSearch();  // waits

  // Waits for its end. `ranks`: the same ones, in the same order.
  void fill_in(std::vector<RankStacks>& ranks);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// For threads that sleep in SQLite between two attempts to lock a database: finds the process that holds the lock. Such
// threads are recognised by their frames, so the stacks must have been unwound; if there is no such thread, nothing is
// read.
void find_database_holders(std::vector<RankStacks>& ranks);

// A short form of a process's command: "python3 prepare.py", "bash -c ...", up to the first word that is not an option,
// at most 80 bytes.
std::string short_command(const std::vector<std::string>& arguments);

}  // namespace rankstacks::capture
