// Which thread of its own process a thread waits for, as known from memory: the thread that it joins, or the holder
// of its lock.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

struct ThreadWait {
  enum class For {
    kEnd,         // the end of that thread
    kPythonLock,  // the lock that it holds; certain, except for a Lock, for which it is likely
    kNativeLock,  // the lock that it holds
    kGil,
  };
  For what = For::kEnd;
  std::size_t thread = 0;  // the thread that is waited for: index into the rank's threads
};

// Index of the thread of `rank` with this tid; std::nullopt if it has none.
std::optional<std::size_t> thread_with(const RankSnapshot& rank, Tid tid);

// std::nullopt if it waits for no thread of its process, or if that is not known.
std::optional<ThreadWait> thread_wait_of(const RankSnapshot& rank, std::size_t thread);

// Whether the thread waits, through others of its process or at once, for one that waits for itself: it holds the lock
// that it waits for, or threads wait for each other in a circle. None of them gets on, whatever other ranks do.
bool waits_in_own_circle(const RankSnapshot& rank, std::size_t thread);

// Whether the thread waits for the GIL, and its holder keeps it over a call into code outside of the interpreter: the
// holder does not run, or several samples found both at one place each, the holder inside of that call. (A holder that
// runs Python code hands the GIL on every few milliseconds.)
bool waits_for_kept_gil(const JobSnapshot& job, const RankSnapshot& rank, std::size_t thread);

// The chain of waits from that thread on, each for the next thread. It ends at a thread that waits for none of its
// process, or before it would return to a thread that it has passed.
std::vector<ThreadWait> thread_waits_from(const RankSnapshot& rank, std::size_t thread);

}  // namespace rankstacks::analyzers
