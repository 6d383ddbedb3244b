// GPU cores among the core files: which process each one belongs to, and what they contain about its GPUs.
//
//     core_1795297016_node-a_1293.nvcudmp    the driver's own name: time, host, pid
//     gpucore.node-a.1293, rank3.1293.gz     names requested with CUDA_COREDUMP_FILE
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "capture/rank_stacks.h"
#include "gpu/core_file.h"
#include "model/snapshot.h"

namespace rankstacks::capture {

// The information about its process that the name of a GPU core contains.
struct GpuCoreName {
  std::optional<int> rank;
  std::optional<Pid> pid;  // the last number in it that can be one
  std::string host;        // empty: not in the name
};
GpuCoreName read_gpu_core_name(const std::string& path);

struct OpenedGpuCore {
  std::string path;
  Result<gpu::GpuCore> core;
};

// The GPU cores of a job. Each is stored with the rank that it belongs to, identified by the path of that rank's core.
class GpuCoresOfJob {
 public:
  void put(std::string rank_path, OpenedGpuCore gpu_core) {
    cores_.emplace_back(std::move(rank_path), std::move(gpu_core));
  }
  // The time recorded in the GPU core of that path.
  std::optional<std::chrono::system_clock::time_point> written_at(const std::string& path) const;
  void add_to(JobSnapshot& job) const;

 private:
  std::vector<std::pair<std::string, OpenedGpuCore>> cores_;
};

// Joins the GPU cores with the ranks. The entries of `ranks` are empty where `gpu_cores` has an entry. A GPU core that
// belongs to the process of another core is removed from `ranks` and added to that rank; the other GPU cores become
// ranks of their own.
GpuCoresOfJob join_gpu_cores(std::vector<RankStacks>& ranks, std::vector<std::optional<OpenedGpuCore>> gpu_cores);

// Which of `ranks` (from host cores) the GPU core belongs to: the one with its pid and host; else the one with its
// rank; else the one that has the thread that owns its context. std::nullopt if it could belong to none of them, or to
// more than one. A rank that contradicts the name is never chosen.
std::optional<std::size_t> rank_of_gpu_core(const OpenedGpuCore& gpu_core,
                                            const std::vector<const RankSnapshot*>& ranks,
                                            const std::vector<std::vector<Tid>>& threads);

// A rank made from the GPU core alone: no threads, only its GPUs (filled in by add_gpus).
RankSnapshot rank_of_gpu_core_alone(const OpenedGpuCore& gpu_core);

// Adds the core's devices to the rank, with frames of the job, in order of their PCI addresses. Adds its problems too,
// with the GPU core's path if the rank belongs to another core.
void add_gpus(const OpenedGpuCore& gpu_core, RankSnapshot& rank, FrameTable& frames);

}  // namespace rankstacks::capture
