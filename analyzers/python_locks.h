// Describes the Python lock, the GIL, or the end of a thread, that a thread waits for, as known from its process's
// memory.
#pragma once

#include <optional>
#include <string>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// "a Python lock", "an RLock", "the import of torch"
std::string describe_lock(const PythonLock& lock);

// What a thread waits for, and the thread that keeps it waiting; the latter goes after the place where it waits.
struct PythonWait {
  std::string verb;  // "waits for a Python lock", "waits for the GIL", "waits for its thread 4713 to end"
  // ", which its thread reporter holds, in write_report at train.py:9 (sleeping)"; "" if it holds the lock itself
  std::string holder;
};
// `waiting` is an index into the rank's threads. std::nullopt if it waits for none of these, or if it is not known
// which thread keeps it waiting.
std::optional<PythonWait> describe_python_wait(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting);

}  // namespace rankstacks::analyzers
