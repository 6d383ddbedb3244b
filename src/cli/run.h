// The whole program except main(): what tests call.
#pragma once

#include <iosfwd>

#include "gpu/machine.h"

namespace rankstacks::cli {

// Exit status: 0 every target was read completely; 1 a report was made, but some target is partial or failed; 2 nothing
// could be done. `machine`: in tests, a directory that plays the machine.
int run(int argc, const char* const* argv, std::ostream& out, std::ostream& err, const gpu::Machine& machine = {});

}  // namespace rankstacks::cli
