// The verdict's sentences, which a user reads first.
#pragma once

#include <string>
#include <string_view>

#include "analyzers/rank_state.h"

namespace rankstacks::analyzers {

// What to do about a suspect with that reason.
std::string advice_for(Reason reason);

// The same, taking into account its GPUs and the kind of its wait.
std::string advice_for(const JobSnapshot& job, const RankState& state, Reason reason);

// "is in its data pipeline (Blocked.__getitem__ at train.py:9, blocked in read(fd 5 -> pipe:[123]))"
std::string describe_suspect(const JobSnapshot& job, const RankState& state, Reason reason);

// "ends by an error of its own GPU work (c10::DistBackendError: ... CUDA error: an illegal memory access ...)"
std::string describe_gpu_failure(const ThreadSnapshot& thread);
// It asks for a GPU core if what ran on the rank's GPUs is not known.
std::string advice_for_gpu_failure(const RankSnapshot& rank);

// ": pid 4711 (sleep 100000)", ": pid 4711, in tokenize at data.py:7 (running)"
std::string describe_child(const JobSnapshot& job, std::size_t index);

// "ranks 0-1,3-7 wait in all_reduce". Empty if no rank waits.
std::string describe_waiting(const JobSnapshot& job, const std::vector<RankState>& states);

}  // namespace rankstacks::analyzers
