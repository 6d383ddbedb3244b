// Describes the processes that a blocked system call waits for.
#pragma once

#include <string>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// The continuation of "blocked in read(fd 5 -> pipe:[123])": " from pid 4711 (rank 2)", ", held by pid 99 (python3
// prepare.py)", " for pid 12 (sh -c ...)". "" if the other ends are not known.
std::string describe_other_ends(const JobSnapshot& job, const SyscallInfo& call);

// For a call with another end of kind kDatabase: "a lock of the database cache.db".
std::string database_lock_name(const SyscallInfo& call);

}  // namespace rankstacks::analyzers
