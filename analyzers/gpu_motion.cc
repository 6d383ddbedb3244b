#include "analyzers/gpu_motion.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace rankstacks::analyzers {
namespace {

bool has(const GpuExecution& execution, const GpuKernel& kernel) {
  return std::any_of(execution.kernels.begin(), execution.kernels.end(), [&](const GpuKernel& other) {
    return other.grid_id == kernel.grid_id && other.entry == kernel.entry;
  });
}

}  // namespace

void fold_sessions(const JobSnapshot& before, JobSnapshot& after) {
  std::map<std::pair<Pid, std::string>, const GpuExecution*> first;
  for (const RankSnapshot& rank : before.ranks)
    for (const GpuSnapshot& gpu : rank.gpus)
      if (gpu.execution && gpu.execution->source == GpuSource::kDebugger)
        first.emplace(std::pair(rank.pid, gpu.pci), &*gpu.execution);
  for (RankSnapshot& rank : after.ranks)
    for (GpuSnapshot& gpu : rank.gpus) {
      const auto found = first.find({rank.pid, gpu.pci});
      if (!gpu.execution || gpu.execution->source != GpuSource::kDebugger || found == first.end()) continue;
      const GpuExecution& earlier = *found->second;
      if (earlier.kernels.empty() && gpu.execution->kernels.empty()) continue;
      gpu.execution->moved = std::none_of(earlier.kernels.begin(), earlier.kernels.end(),
                                          [&](const GpuKernel& kernel) { return has(*gpu.execution, kernel); });
    }
}

bool gpus_go_on(const RankSnapshot& rank) {
  return std::any_of(rank.gpus.begin(), rank.gpus.end(),
                     [](const GpuSnapshot& gpu) { return gpu.execution && gpu.execution->moved.value_or(false); });
}

}  // namespace rankstacks::analyzers
