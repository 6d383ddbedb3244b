// Ranks whose main thread only waits for the threads of its own process, in programs that no rule knows: a pool of a hundred threads, of which one
// polls for a message. Which thread tells is found by comparison: what every rank has is background, what only some have is what differs.
#pragma once

#include <optional>
#include <vector>

#include "analyzers/rank_state.h"

namespace rankstacks {

// Whether this thread waits for another of its process without saying which: pthread_join, a condition variable, a semaphore, a futex.
bool waits_for_own_threads(const JobSnapshot& job, const ThreadSnapshot& thread);

// Of a rank whose main thread waits for another of its process, as memory tells, over locks and joined threads: what the thread at the end of that way does, where it
// waits for other ranks: so does the rank. Else what the last one does that is joined. Nothing: it does not so wait, or these do not tell.
std::optional<Doing> of_awaited_thread(const JobSnapshot& job, Activities& activities, std::size_t rank, const Doing& main);

// Of a Python process whose main thread waits in a native library for a thread of that library's: what that thread does, where there is one, or several that do the
// same. Nothing: it does not so wait, or they do not tell.
std::optional<Doing> of_called_library(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, Activities& activities, std::size_t rank, const Doing& main);

// Where all main threads stand alike in such a wait, gives each state the thread that tells for it. Where most ranks' telling threads are
// alike and those of the others stand still, these many are taken to wait for the few. Where several samples saw a thread that every rank has get on, it tells.
void refine_by_classes(const JobSnapshot& job, const std::vector<Cluster>& clusters, Activities& activities, std::vector<RankState>& states);

}  // namespace rankstacks
