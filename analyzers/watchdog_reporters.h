// Watchdogs that end their process. PyTorch's NCCL watchdog, its heartbeat monitor and their like find that a
// collective has taken too long and abort: they bring the news of what another rank did, or did not, and are not its
// cause. Unless the exception that they die of is of their own process's GPU work (CxxException::cause), which the
// watchdog throws again: then that rank is the one that failed.
#pragma once

#include <string>
#include <vector>

#include "analyzers/analysis.h"

namespace rankstacks {

// A thread whose end is the news of something else.
bool is_watchdog_reporter(Role role, const ThreadSnapshot& thread);

// Threads of that kind that abort or terminate, at the frame that says so; of ranks, in their order.
std::vector<Evidence> find_watchdog_reporters(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles);

// Threads that terminate because the GPU work of their own process failed, at the frame that says so; of ranks, in
// their order.
std::vector<Evidence> find_gpu_failures(const JobSnapshot& job);

// "the watchdog that ends rank 3 only reports it (c10::DistBackendError: Watchdog caught ...): ..."; "" where there is none.
std::string describe_watchdog_reporters(const JobSnapshot& job, const std::vector<Evidence>& reporters);

// "std::runtime_error: no such file", the first line of its text, cut.
std::string describe_exception(const CxxException& exception);

}  // namespace rankstacks
