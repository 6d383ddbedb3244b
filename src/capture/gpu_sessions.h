// `attach --gpu`: asks each rank's driver what runs on the rank's GPUs, after the stacks were captured (a session adds
// a thread and frames to the process).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/machine.h"
#include "model/snapshot.h"

namespace rankstacks::capture {

struct GpuRequest {
  gpu::Machine machine;   // a simulated machine in tests only
  bool sessions = false;  // --gpu
  // --gpu-core: write a lightweight GPU core of each rank, at this path followed by its rank: FILE.rank3.
  std::optional<std::string> core;
  std::uint64_t core_limit = std::uint64_t{1} << 30;  // --gpu-core-limit, bytes for one core
  // --gpu-limit: for all sessions, which run at the same time, until the GPUs are being paused; three times as long in
  // all. With a core: --timeout, five times over, but 180 s.
  std::chrono::seconds limit{5};
  std::chrono::steady_clock::duration timeout = std::chrono::seconds(60);  // --timeout
};

struct GpuPlan {
  std::vector<std::size_t> ranks;  // indices into job.ranks: live processes that have a CUDA context
  // A driver before 590: a thread of each process makes inferior calls, and what they load stays in the process.
  bool makes_inferior_calls = false;
};

// A thread inside of a launch that waits for room in the queue of its GPU: it yields its processor again and again, and
// holds the driver's lock meanwhile, so that no debugger can attach. Known by its stack: sched_yield, called by
// libcuda, called by one of the driver's functions that launch or copy.
struct BlockedLaunch {
  Tid tid = 0;
  std::string call;  // "cuLaunchKernel"
};
std::optional<BlockedLaunch> blocked_launch_of(const FrameTable& frames, const RankSnapshot& rank);

// Determines the processes to ask. A rank that should be asked but cannot be gets a problem; a job without any GPU gets
// one problem.
GpuPlan plan_gpu_sessions(JobSnapshot& job, const GpuRequest& request);

// Holds all sessions in parallel. Fills in RankSnapshot::gpus; a failure becomes a problem of that rank, which is then
// partial.
void hold_gpu_sessions(JobSnapshot& job, const GpuPlan& plan, const GpuRequest& request);

}  // namespace rankstacks::capture
