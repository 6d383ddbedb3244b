// What live captures and cores have in common once their bytes are there: unwind, symbolize in one batch, build the snapshot.
#pragma once

#include <chrono>
#include <vector>

#include "capture/capture_job.h"
#include "capture/rank_stacks.h"

namespace rankstacks {

// Marks the rank as failed: no threads, the error as its problem.
void fail_rank(RankStacks& rank, const Error& error);

// Those without stacks yet, in parallel.
void unwind_ranks(std::vector<RankStacks>& ranks, const CaptureOptions& options);

struct FinishedJob {
  JobSnapshot job;
  std::vector<std::vector<RankSnapshot>> later;   // of `later`, those that could be read, with frames of job.frames
};
// `later`: further looks at the same processes. `captured_at`: of the first rank; `started`: when the tool began, for elapsed_ms.
FinishedJob finish_job(std::vector<RankStacks> ranks, std::vector<std::vector<RankStacks>> later, const CaptureOptions& options,
                       std::chrono::system_clock::time_point captured_at, std::chrono::steady_clock::time_point started);

}  // namespace rankstacks
