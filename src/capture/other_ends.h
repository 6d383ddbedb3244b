// Fills in whom the blocked system calls of captured processes wait for: SyscallInfo::others, own_end, other_host. After the stop, while they run.
#pragma once

#include <vector>

#include "capture/rank_stacks.h"

namespace rankstacks {

// What does not answer in time is left out.
void find_other_ends(std::vector<RankStacks>& ranks);

// How a process is called in a few words: "python3 prepare.py", "bash -c ..." up to the first word that is no option, 80 bytes at most.
std::string short_command(const std::vector<std::string>& arguments);

}  // namespace rankstacks
