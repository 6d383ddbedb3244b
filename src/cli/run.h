// The whole program except main(): what tests call.
#pragma once

#include <iosfwd>
#include <memory>

#include "capture/leftovers.h"
#include "gpu/machine.h"

namespace rankstacks::cli {

// Exit status: 0 every target was read completely; 1 a report was made, but some target is partial or failed; 2 nothing
// could be done. `machine`: in tests, a directory that plays the machine. `leftovers`: receives what the last look
// leaves, for a process that ends without releasing it.
int run(int argc, const char* const* argv, std::ostream& out, std::ostream& err, const gpu::Machine& machine = {},
        const std::shared_ptr<capture::Leftovers>& leftovers = std::make_shared<capture::Leftovers>());

}  // namespace rankstacks::cli
