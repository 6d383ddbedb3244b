// Describes the processes that a blocked system call waits for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// The continuation of "blocked in read(fd 5 -> pipe:[123])": " from pid 4711 (rank 2)", ", held by pid 99 (python3
// prepare.py)", " for pid 12 (sh -c ...)". "" if the other ends are not known.
std::string describe_other_ends(const JobSnapshot& job, const SyscallInfo& call);

// "stopped" or "frozen", of a process of which no thread can run; else "".
std::string_view held_word(const RankSnapshot& process);

// If all at the other end of the call, made by a thread of `caller`, are processes of the job that cannot run: the
// index of one of them.
std::optional<std::size_t> held_other_end(const JobSnapshot& job, const RankSnapshot& caller, const SyscallInfo& call);

// For a call with another end of kind kDatabase: "a lock of the database cache.db".
std::string database_lock_name(const SyscallInfo& call);

}  // namespace rankstacks::analyzers
