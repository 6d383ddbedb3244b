// Fills in whom the blocked system calls of captured processes wait for: SyscallInfo::others, own_end, database, other_host. After the stop, while they run.
#pragma once

#include <vector>

#include "capture/rank_stacks.h"

namespace rankstacks {

// What does not answer in time is left out.
void find_other_ends(std::vector<RankStacks>& ranks);

// Of threads that sleep in SQLite between two tries for a lock: who holds the database's. That they do is told by their frames, so the stacks must be unwound;
// where there is no such thread, nothing is read.
void find_database_holders(std::vector<RankStacks>& ranks);

// How a process is called in a few words: "python3 prepare.py", "bash -c ..." up to the first word that is no option, 80 bytes at most.
std::string short_command(const std::vector<std::string>& arguments);

}  // namespace rankstacks
