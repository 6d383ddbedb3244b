// The values of a few variables of Python frames: what tells how far a program is, and which process group a call of PyTorch's works on.
//
//   files of the user (variable_names.h)   loop counters: ints among the locals, closures' cells, and a module's globals
//   torch's distributed_c10d.py            src, dst, tag; the group
//
// Part of what is copied during the stop. Values that do not hold together are left out; nothing of this is ever a problem of the target.
#pragma once

#include "python/layouts.h"
#include "python/objects.h"
#include "python/python.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxVariableFramesOfThread = 64;     // the innermost of those files
inline constexpr std::size_t kMaxVariableFrames = 65'536;         // of all threads
inline constexpr std::size_t kMaxNumbersOfFrame = 16;

// Fills state.variables and RawFrame::variables. `codes` are those of state.threads' frames and have been read; they are not yet in state.codes.
void read_variables(const Target& target, const Layout& layout, const RuntimeCandidate& runtime, CodeReader& codes, State& state);

}  // namespace rankstacks::python
