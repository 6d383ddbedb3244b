// DistributedDataParallel with a communication hook (torch's register_comm_hook): the hook returns a future for each
// bucket of gradients, and the end of the backward pass waits for these. The future of a collective over NCCL is
// complete when its kernel has been launched (ProcessGroupNCCL::collective), so that a thread that sleeps there waits
// for a future that the hook has made itself, and that a thread or a task of its process has to set.
#pragma once

#include <cstddef>
#include <optional>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Whether the thread sleeps for the future of a bucket: within c10d::Reducer::finalize_backward, which is frame `frame`
// of it, and in nothing that this has called.
bool waits_for_bucket(const JobSnapshot& job, const ThreadSnapshot& thread, std::size_t frame);

// The only thread of the rank, apart from that one and the main thread, with the user's Python code on its stack: who
// may be to set the future. std::nullopt if there is none, or several.
std::optional<std::size_t> setter_of_hooks_future(const JobSnapshot& job, const RankSnapshot& rank, std::size_t thread);

}  // namespace rankstacks::analyzers
