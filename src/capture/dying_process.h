// What /proc says of a process that the kernel writes the core of, and a core does not. The kernel waits in that write
// until its reader goes on (core(5)): until then the process has its threads, its descriptors and its limits.
//
//     threads           names, processor time              /proc/PID/task/TID
//     blocked calls     what their descriptors are, who is at the other end
//     surroundings      limits, processors, control groups, distribution
//
// Their states are those of threads that end, which say nothing of the time before: they are left out. So is all that
// the calling process has no right to read, and what does not answer within 2 s (base/unattended.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "capture/rank_stacks.h"

namespace rankstacks::capture {

struct DyingThread {
  std::string name;  // the kernel's comm
  double cpu_ms = 0;
};

// By the numbers that the process itself gives its threads, as they are in its core.
using DyingThreads = std::map<Tid, DyingThread>;

// `pid`: in this tool's numbering.
DyingThreads read_dying_threads(Pid pid);

// Fills in what the calls of the core's threads are blocked on. Other ends only if the core has this tool's numbering.
void describe_dying_calls(std::vector<RankStacks>& ranks, Pid pid);

// What its descriptors refer to, by their numbers: at most 4,096 of them.
std::map<int, std::string> read_dying_descriptors(Pid pid);

// Into the snapshot that was made of the core: what the descriptors of blocked calls refer to, where that is not known.
void add_dying_descriptors(RankSnapshot& rank, const std::map<int, std::string>& descriptors);

// The same for threads.
void add_dying_threads(RankSnapshot& rank, const DyingThreads& threads);

}  // namespace rankstacks::capture
