// The whole program, helper processes included: what main() calls.
#pragma once

#include "gpu/machine.h"

namespace rankstacks::cli {

// `machine`: whose GPUs are looked at; only the tests' own main() passes one that a directory plays (tests/tool).
int run_tool(int argc, const char* const* argv, const gpu::Machine& machine);

}  // namespace rankstacks::cli
