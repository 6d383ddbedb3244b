// The process that asks NVML, so that a call which never comes back holds up nobody else: `rankstacks --internal-nvml`,
// started and killed by nvml_query. It loads this machine's library and no other (machine_library.h), and has no
// environment. Writes its answer to stdout (nvml_answer.h), each GPU as soon as it is read; they are read in parallel.
#pragma once

#include "gpu/machine.h"

namespace rankstacks::gpu {

inline constexpr const char* kNvmlHelperOption = "--internal-nvml";

// Does not return where the command line asks for the helper, which ends the process at once, whatever still hangs in
// it.
void run_nvml_helper_if_asked(int argc, const char* const* argv, const Machine& machine);

}  // namespace rankstacks::gpu
