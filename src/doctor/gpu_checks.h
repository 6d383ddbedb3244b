// What prevents GPU state from being seen: by NVML's part of the report, by attach --gpu, and in GPU cores.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/self.h"
#include "doctor/system.h"

namespace rankstacks::doctor {

// A single finding on a machine without an NVIDIA device.
std::vector<Finding> check_gpus(const System& system, const Self& self, const gpu::NvmlAnswer& nvml);

// Checks of a process; empty if it has no libcuda loaded. `threads`: the names of its threads.
std::vector<Finding> check_gpu_of(const System& system, const gpu::NvmlAnswer& nvml, Pid pid, const TargetFacts& facts,
                                  const std::vector<std::string>& threads);

}  // namespace rankstacks::doctor
