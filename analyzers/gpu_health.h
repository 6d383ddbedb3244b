// The condition of the ranks' GPUs according to NVML, compared with each other: what is wrong with a GPU, and how it
// differs from most of the others.
#pragma once

#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

struct GpuCondition {
  std::size_t rank = 0, gpu = 0;   // indices
  std::vector<std::string> notes;  // "NVLinks 3,5 down", "SM clock 1200 MHz, of the others 1980". Not sanitized
  // It differs from more than half of the GPUs; always false if there is only one.
  bool differs = false;
};

// One for each GPU that NVML reported on, in the order of the snapshot.
std::vector<GpuCondition> gpu_conditions(const JobSnapshot& job);

// "the GPU of rank 7 differs (NVLinks 3,5 down)": at most three GPUs. Empty if none differs.
std::string describe_gpu_differences(const JobSnapshot& job);

}  // namespace rankstacks::analyzers
