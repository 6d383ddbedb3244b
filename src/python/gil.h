// Which thread state holds the GIL, and where the structures of the GIL are in memory.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "python/layouts.h"

namespace rankstacks::python {

struct GilState {
  std::unordered_set<Address>
      holders;                // PyThreadState: one for each GIL that is held (3.12+ may have one GIL per interpreter)
  std::vector<Range> ranges;  // of each struct _gil_runtime_state in use
  std::vector<std::string> problems;
};

GilState read_gil(const target::Target& target, const Layout& layout, const RuntimeCandidate& runtime,
                  std::span<const Address> interpreters);

}  // namespace rankstacks::python
