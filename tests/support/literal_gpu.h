// GPUs in literal snapshots.
#pragma once

#include <string>

#include "support/literal_job.h"

namespace rankstacks::testing {

inline const std::string kAllReduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
inline const std::string kAllGather = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
inline const std::string kSendRecv = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";

inline FrameId gpu_frame(LiteralJob& literal, const std::string& function, Address address, Vaddr offset) {
  Frame frame;
  frame.kind = FrameKind::kGpu;
  frame.function = function;
  frame.address = address;
  frame.offset = offset;
  return literal.job.frames.intern(frame);
}

inline GpuSnapshot& gpu_of(RankSnapshot& rank) {
  if (!rank.gpus.empty()) return rank.gpus.front();
  GpuSnapshot& gpu = rank.gpus.emplace_back();
  gpu.pci = "0000:0" + std::to_string(rank.rank.value_or(0) % 8) + ":00.0";
  gpu.name = "NVIDIA H200";
  return gpu;
}

// A GPU that was examined and on which nothing runs.
inline GpuExecution& looked_at(RankSnapshot& rank) {
  GpuSnapshot& gpu = gpu_of(rank);
  if (!gpu.execution) gpu.execution.emplace().contexts = 1;
  return *gpu.execution;
}

inline GpuKernel& runs(LiteralJob& literal, RankSnapshot& rank, const std::string& function, std::uint32_t blocks = 13,
                       std::uint32_t threads = 512) {
  GpuKernel& kernel = looked_at(rank).kernels.emplace_back();
  kernel.grid_id = 7;
  kernel.function = function;
  kernel.entry = 0x7f0000001000;
  kernel.grid = {blocks, 1, 1};
  kernel.block = {threads, 1, 1};
  kernel.blocks = kernel.sms = blocks;
  kernel.warps = blocks * threads / 32;
  kernel.lanes = blocks * threads;
  const FrameId frame = gpu_frame(literal, function, 0x7f0000002230, 0x1230);
  kernel.places = {{frame, kernel.warps}};
  kernel.frames = {frame};
  return kernel;
}

inline GpuHealth& health_of(RankSnapshot& rank, double utilization = 100) {
  GpuSnapshot& gpu = gpu_of(rank);
  if (!gpu.health) {
    gpu.health.emplace();
    gpu.health->memory_used = std::uint64_t{71} << 30;
    gpu.health->memory_total = std::uint64_t{141} << 30;
    gpu.health->driver = "580.159.04";
  }
  gpu.health->utilization_mean = utilization;
  return *gpu.health;
}

// A rank that waits for its GPU in a process with NCCL's threads, as every rank of an NCCL job does in a hang.
inline Stack waits_for_gpu(int line = 17) {
  return Stack{libc("sched_yield"), nat("cuStreamSynchronize", "/usr/lib/libcuda.so.1"),
               nat("cudaStreamSynchronize", "/x/libcudart.so"),
               py("synchronize", kPackages + "torch/cuda/__init__.py", 985)} +
         in_main(line);
}
inline RankSnapshot& nccl_rank(LiteralJob& literal, int number, int world, const Stack& stack) {
  RankSnapshot& rank = literal.rank(number, world, stack, 'R');
  literal.thread(rank, 1000 * (number + 1), "pt_nccl_watchdg",
                 {libc("pthread_cond_clockwait"), nat("c10d::ProcessGroupNCCL::Watchdog::runLoop()")});
  return rank;
}

}  // namespace rankstacks::testing
