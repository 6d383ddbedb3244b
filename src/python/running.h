// Chooses the interpreter that runs in a target among those that its files could be.
#pragma once

#include <span>
#include <vector>

#include "python/layouts.h"
#include "python/python.h"

namespace rankstacks::python {

inline constexpr std::size_t kMaxInterpreters = 4096;

struct Runtime {
  RuntimeCandidate candidate;
  Version version;
  Layout layout;
};

// Chooses among the candidates, and if none of them is the running interpreter, among what a scan of memory finds
// (3.13+). `problems`: why the others were not taken. Errors: as read_python_state().
Result<Runtime> find_running(const target::Target& target, std::span<const RuntimeCandidate> candidates,
                             std::vector<Problem>& problems);

}  // namespace rankstacks::python
