// Ranks that wait for another rank by a pipe, a socket or a file lock of their own making, in no library that is known: the kernel tells who is at the other end.
#pragma once

#include <vector>

#include "analyzers/standing.h"

namespace rankstacks {

// Makes such a wait a wait for that rank (Activity::kPeerWait, Standing::peer_process): where the other end is one rank's alone, and what that one does, or waits for in the
// same way, is no wait for other ranks that a library's frames tell. (A rank that asks a server in a rank that has arrived in a collective is what that collective lacks.)
void tell_by_other_ends(const JobSnapshot& job, std::vector<Standing>& standings);

}  // namespace rankstacks
