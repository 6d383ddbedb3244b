// Ranks whose main thread only waits for other threads of its process, in programs that no rule knows: for example a
// pool of a hundred threads, of which one polls for a message. The thread that matters is found by comparison:
// threads that every rank has are background, threads that only some ranks have are the difference.
#pragma once

#include <optional>
#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// Whether this thread waits for another of its process without saying which: in pthread_join, on a condition
// variable, a semaphore or a futex.
bool waits_for_own_threads(const JobSnapshot& job, const ThreadSnapshot& thread);

// For a rank whose main thread waits for another of its process, as known from memory, through locks and joined
// threads: what the last thread of this chain does, if it waits for other ranks (then the rank does, too). Otherwise
// what the last joined thread does, unless the frames of the main thread show that already. std::nullopt if the main
// thread does not wait in this way, or if those threads show nothing.
std::optional<Doing> of_awaited_thread(const JobSnapshot& job, Activities& activities, std::size_t rank,
                                       const Doing& main);

// For a Python process whose main thread waits in a native library for a thread of that library: what that thread
// does, if there is only one, or if several do the same. std::nullopt if the main thread does not wait in this way,
// or if those threads show nothing.
std::optional<Doing> of_called_library(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                       Activities& activities, std::size_t rank, const Doing& main);

// If all main threads are at the same place in such a wait, assigns each state the thread that shows what the rank
// does. If these threads are alike in most ranks and the threads of the other ranks make no progress, the majority is
// assumed to wait for the minority. If several samples show that a thread that every rank has makes progress, that
// thread is used.
void refine_by_classes(const JobSnapshot& job, const std::vector<Cluster>& clusters, Activities& activities,
                       std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
