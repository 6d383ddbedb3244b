// Reads the values of a few variables of Python frames, which show how far a program has come, and which process group
// a call of PyTorch works on.
//
//   files of the user (variable_names.h)   loop counters: ints among the locals, closures' cells, and module globals
//   torch's distributed_c10d.py            src, dst, tag; the group
//
// This is copied during the stop. Inconsistent values are left out and are never reported as a problem of the target.
#pragma once

#include "python/layouts.h"
#include "python/objects.h"
#include "python/python.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxVariableFramesOfThread = 64;  // the innermost of those files
inline constexpr std::size_t kMaxVariableFrames = 65'536;      // of all threads
inline constexpr std::size_t kMaxNumbersOfFrame = 16;

// Fills state.variables and RawFrame::variables. `codes` holds the code objects of state.threads' frames; they have
// been read, but are not yet in state.codes.
void read_variables(const target::Target& target, const Layout& layout, const RuntimeCandidate& runtime,
                    CodeReader& codes, State& state);

}  // namespace rankstacks::python
