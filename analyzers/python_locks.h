// The Python lock, or the end of a thread, that a thread waits for, as its process's memory tells it: in words.
#pragma once

#include <optional>
#include <string>

#include "model/snapshot.h"

namespace rankstacks {

// "a Python lock", "an RLock", "the import of torch"
std::string describe_lock(const PythonLock& lock);

// What it waits for, and, after the place where it waits, the thread that keeps it waiting.
struct PythonWait {
  std::string verb;     // "waits for a Python lock", "waits for its thread 4713 to end"
  std::string holder;   // ", which its thread reporter holds, in write_report at train.py:9 (sleeping)"; "": it holds the lock itself
};
// `waiting`: an index into the rank's threads. Nothing: it waits for no Python lock and no thread's end, or nothing is known of who keeps it.
std::optional<PythonWait> describe_python_wait(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting);

}  // namespace rankstacks
