// Watchdogs that end their process. PyTorch's NCCL watchdog, its heartbeat monitor and similar threads abort when
// they find that a collective has taken too long: they report what another rank did, or did not do, and are not its
// cause. The exception is a watchdog that dies of an error of its own process's GPU work (CxxException::cause), which
// it throws again: then its own rank is the one that failed.
#pragma once

#include <string>
#include <vector>

#include "analyzers/analysis.h"

namespace rankstacks::analyzers {

// Whether the thread ends its process because of something that happened elsewhere.
bool is_watchdog_reporter(known::Role role, const ThreadSnapshot& thread);

// Threads of that kind that abort or terminate, each with the frame that shows it, in the order of their ranks.
std::vector<Evidence> find_watchdog_reporters(const JobSnapshot& job,
                                              const std::vector<std::vector<known::Role>>& roles);

// Threads that terminate because the GPU work of their own process failed, each with the frame that shows it, in the
// order of their ranks.
std::vector<Evidence> find_gpu_failures(const JobSnapshot& job);

// "the watchdog that ends rank 3 only reports it, after 12 s in all-gather 38 of group default_pg", or "with" another
// exception. "" if there is none. `wait_is_named`: the operation that has timed out is said elsewhere.
std::string describe_watchdog_reporters(const JobSnapshot& job, const std::vector<Evidence>& reporters,
                                        bool wait_is_named);

// "std::runtime_error: no such file": the type and the first line of the message, truncated, without what watchdogs add
// to it.
std::string describe_exception(const CxxException& exception);

}  // namespace rankstacks::analyzers
