// `attach --gpu`: what runs on the GPUs of the ranks, asked of each rank's driver, after the stacks were taken (a session adds a thread and frames).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/machine.h"
#include "model/snapshot.h"

namespace rankstacks {

struct GpuRequest {
  gpu::Machine machine;                    // one that is played only in tests
  bool sessions = false;                   // --gpu
  std::optional<std::string> core;         // --gpu-core: a lightweight GPU core of each rank, at this path and its rank: FILE.rank3
  std::uint64_t core_limit = std::uint64_t{1} << 30;   // --gpu-core-limit, bytes for one core
  std::chrono::steady_clock::duration timeout = std::chrono::seconds(60);   // --timeout: for all sessions, which are held at once, 45 s at least; five times that with a core
};

struct GpuPlan {
  std::vector<std::size_t> ranks;          // indices into job.ranks: live processes that have a CUDA context
  bool makes_inferior_calls = false;            // a driver before 590: a thread of each makes inferior calls, and what is loaded for it stays
};

// Which processes will be asked. Ranks that cannot be get a problem, where they were meant: a job without any GPU says so once.
GpuPlan plan_gpu_sessions(JobSnapshot& job, const GpuRequest& request);

// All of them in parallel. Fills RankSnapshot::gpus; what went wrong is a problem of that rank, which is partial then.
void hold_gpu_sessions(JobSnapshot& job, const GpuPlan& plan, const GpuRequest& request);

}  // namespace rankstacks
