// Whom a thread waits for within its own process, by what memory tells: the thread whose end it joins, or that holds its lock.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks {

struct ThreadWait {
  enum class For {
    kEnd,          // of that thread
    kPythonLock,   // that it holds; of a Lock that is likely, of others certain
    kNativeLock,   // that it holds
    kGil,
  };
  For what = For::kEnd;
  std::size_t thread = 0;   // the one that is waited for: index into the rank's threads
};

// Index of the thread of `rank` with this tid; nothing: it is not among them.
std::optional<std::size_t> thread_with(const RankSnapshot& rank, Tid tid);

// Nothing: it waits for none, or that is not known.
std::optional<ThreadWait> thread_wait_of(const RankSnapshot& rank, std::size_t thread);

// From that thread on, each waiting for the next; it ends at one that waits for none of its process, or where it would come back to one that it has passed.
std::vector<ThreadWait> thread_waits_from(const RankSnapshot& rank, std::size_t thread);

}  // namespace rankstacks
