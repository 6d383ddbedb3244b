// Versions that the paths of frames state, for a rank of which nothing else says with what it ran: the dump of another
// tool, or a report of a build that did not record libraries.
//
//     /usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13      torch 1.13
//     /opt/nccl/lib/libnccl.so.2.27.3                     NCCL 2.27.3
//     /usr/bin/python3.11, /usr/lib/python3.11/queue.py   Python 3.11
#pragma once

#include "model/snapshot.h"

namespace rankstacks::versions {

// Adds to ranks without modules and environment those modules whose versions their frames' paths state, and on which
// all of the rank's frames agree: `VersionFrom::kFileName`. Of two versions that do not contradict each other the
// longer one counts.
void add_modules_of_frames(JobSnapshot& job);

}  // namespace rankstacks::versions
