// The steps that live captures and cores have in common once their memory has been read: unwind, symbolize in one
// batch, build the snapshot.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "capture/capture_job.h"
#include "capture/rank_stacks.h"

namespace rankstacks::capture {

// Marks the rank as failed: no threads, the error as its problem.
void fail_rank(RankStacks& rank, const Error& error);

// Unwinds the ranks that have no stacks yet, in parallel.
void unwind_ranks(std::vector<RankStacks>& ranks, const CaptureOptions& options);

struct FinishedJob {
  JobSnapshot job;
  std::vector<std::vector<RankSnapshot>> later;  // the ranks of `later` that could be read, with frames of job.frames
  std::shared_ptr<void> leftovers;               // what is left of `ranks` and `later`
};
// `later`: further samples of the same processes. `captured_at`: time of the first rank's capture; `started`: when the
// tool began, for elapsed_ms. `meanwhile` is called while the functions' names are looked up.
FinishedJob finish_job(
    std::vector<RankStacks> ranks, std::vector<std::vector<RankStacks>> later, const CaptureOptions& options,
    std::chrono::system_clock::time_point captured_at, std::chrono::steady_clock::time_point started,
    const std::function<void(std::vector<RankStacks>&)>& meanwhile = [](std::vector<RankStacks>&) {});

}  // namespace rankstacks::capture
