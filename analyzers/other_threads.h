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
  // None is in the user's code, and this is the only one that runs an event loop, or something that a rule of
  // known/activity_rules.cc names other than a wait for a thread: a client's request, a child, a file.
  std::optional<std::size_t> in_known_work;
  bool any_python = false;  // others may run Python, as far as is known
};
OtherThreads other_threads(const JobSnapshot& job, const RankSnapshot& rank, std::size_t waiting);

// The thread that shows what a process does that a rank waits for: its main thread, or, if this only waits for an event
// (as that of a multiprocessing manager does), the only other one in the user's code. std::nullopt: it has no main
// thread.
std::optional<std::size_t> serving_thread_of(const JobSnapshot& job, std::size_t rank);

// For a rank that waits for something in Python that another of its threads has to do, or for a future of DDP's
// communication hook: that thread. For one that waits in native code for another thread, while threads of it wait for
// each other's locks (native_waits.h): the first of these. std::nullopt if it does not wait for such a thing, if memory
// names the thread, if it waits for another process, or if no thread or several threads qualify.
std::optional<std::size_t> awaited_other_thread(const JobSnapshot& job, const RankState& state);

// For a rank that gets a batch, or saves or loads a checkpoint, and waits for a thread of its own with an event, a
// queue, a task's result or an event loop, or joins one that does: the only thread in the user's code, or one of
// several at the same function of it (readers of a pool); without such threads the only one that runs a task of a pool.
// std::nullopt if there is none, or if the rank does not wait so.
std::optional<std::size_t> awaited_helper(const JobSnapshot& job, const RankState& state);

}  // namespace rankstacks::analyzers
