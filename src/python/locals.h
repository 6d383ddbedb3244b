// Reads all arguments and local variables of Python frames, for `dump --locals` alone: other reports need the few that
// variables.h reads. This is copied during the stop.
#pragma once

#include "python/layouts.h"
#include "python/objects.h"
#include "python/python.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxLocalsOfFrame = 4096;
inline constexpr std::size_t kMaxLocalsInAll = 65'536;

// Fills state.locals with reprs of up to `longest` characters. As py-spy does it, variables that closures share are
// none of these, and of an argument in a cell (3.11+) the cell is shown. `codes` holds the code objects of
// state.threads' frames; they have been read, but are not yet in state.codes. If a limit is used up, a problem says so.
void read_locals(const target::Target& target, const Layout& layout, std::size_t longest, CodeReader& codes,
                 State& state);

}  // namespace rankstacks::python
