// The whole program, helper processes included: what main() calls.
#pragma once

#include "gpu/machine.h"

namespace rankstacks {

// `machine`: whose GPUs are looked at; one that is played is named by the tests' own main() alone (tests/tool).
int run_tool(int argc, const char* const* argv, const gpu::Machine& machine);

}  // namespace rankstacks
