// The helper process that calls NVML, so that a call that never returns does not block the tool:
// `rankstacks --internal-nvml`, started and killed by NvmlQuery (nvml_query.h). It loads only this machine's own
// library (machine_library.h), and has no environment. It reads the GPUs in parallel, and writes each to stdout as soon
// as it has been read (nvml_answer.h).
#pragma once

#include "gpu/machine.h"

namespace rankstacks::gpu {

inline constexpr const char* kNvmlHelperOption = "--internal-nvml";

// Does not return if the command line asks for the helper: when its answer is written, the helper ends the process at
// once, even if some of its threads still hang in the driver.
void run_nvml_helper_if_asked(int argc, const char* const* argv, const Machine& machine);

}  // namespace rankstacks::gpu
