// Which thread should see to what a thread of its process waits for, where nothing in memory says so: an event, a queue, a condition.
#pragma once

#include <cstddef>
#include <optional>

#include "analyzers/rank_state.h"

namespace rankstacks {

struct OtherThreads {
  std::optional<std::size_t> in_user_code;   // the only one with the user's Python code on its stack: index into the rank's threads
  bool any_python = false;                   // there are others that run Python, as far as is known
};
OtherThreads other_threads(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting);

// Of a rank that waits for something of Python's that another of its threads has to bring about: that thread. Nothing: it does not so wait, memory names whom it waits for, it
// waits for another process, none tells, or several do.
std::optional<std::size_t> awaited_other_thread(const JobSnapshot& job, const RankState& state);

}  // namespace rankstacks
