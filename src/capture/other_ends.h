// Fills in which processes the blocked system calls of captured processes wait for: SyscallInfo::others, own_end,
// database, other_host. Runs after the stop, while the processes run. Processes that do not answer in time are left
// out.
#pragma once

#include <vector>

#include "capture/rank_stacks.h"

namespace rankstacks::capture {

// What does not answer in time is left out.
void find_other_ends(std::vector<RankStacks>& ranks);

// For threads that sleep in SQLite between two attempts to lock a database: finds the process that holds the lock. Such
// threads are recognised by their frames, so the stacks must have been unwound; if there is no such thread, nothing is
// read.
void find_database_holders(std::vector<RankStacks>& ranks);

// A short form of a process's command: "python3 prepare.py", "bash -c ...", up to the first word that is not an option,
// at most 80 bytes.
std::string short_command(const std::vector<std::string>& arguments);

}  // namespace rankstacks::capture
