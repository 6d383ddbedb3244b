// What would prevent a process from being sampled, or a core from being read.
#pragma once

#include <string>
#include <vector>

#include "doctor/core_writing.h"
#include "doctor/finding.h"
#include "doctor/self.h"
#include "doctor/system.h"

namespace rankstacks::doctor {

Section check_process(const System& system, const Self& self, const CorePattern& pattern,
                      const CoreDestination& destination, const gpu::NvmlAnswer& nvml, Pid pid);

Section check_core(const System& system, const std::string& path, const target::CoreOptions& options);

}  // namespace rankstacks::doctor
