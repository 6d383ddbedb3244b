// The Python lock, or the end of a thread, that a thread waits for, as its process's memory tells it: in words.
#pragma once

#include <optional>
#include <string>

#include "model/snapshot.h"

namespace rankstacks {

// Index of the thread of `rank` with this tid.
std::optional<std::size_t> thread_with(const RankSnapshot& rank, Tid tid);

// The thread of `rank` that the waiting one waits for: who holds the Python lock, or whose end it awaits. Nothing: not known, or not among its threads.
std::optional<std::size_t> awaited_thread(const RankSnapshot& rank, const ThreadSnapshot& waiting);

// "a Python lock", "an RLock", "the import of torch"
std::string describe_lock(const PythonLock& lock);

// What it waits for, and, after the place where it waits, the thread that keeps it waiting.
struct PythonWait {
  std::string verb;     // "waits for a Python lock", "waits for its thread 4713 to end"
  std::string holder;   // ", which its thread reporter holds, in write_report at train.py:9 (sleeping)"; "": it holds the lock itself
};
// Nothing: nothing is known of that thread.
std::optional<PythonWait> describe_python_wait(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& waiting);

}  // namespace rankstacks
