// Which other thread of its process a thread probably waits for, if nothing in memory says so: for an event, a queue,
// a condition.
#pragma once

#include <cstddef>
#include <optional>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

struct OtherThreads {
  // The only one with the user's Python code on its stack: index into the rank's threads.
  std::optional<std::size_t> in_user_code;
  bool any_python = false;  // others may run Python, as far as is known
};
OtherThreads other_threads(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting);

// For a rank that waits for something in Python that another of its threads has to do: that thread. std::nullopt if
// it does not wait for such a thing, if memory names the thread, if it waits for another process, or if no thread or
// several threads qualify.
std::optional<std::size_t> awaited_other_thread(const JobSnapshot& job, const RankState& state);

}  // namespace rankstacks::analyzers
