// OwnNote::kInterpreters: where the Python interpreters of the process are. Their files' symbol tables say so, which a
// small core does not hold.
#pragma once

#include <span>
#include <vector>

#include "python/python.h"

namespace rankstacks::small_core {

std::vector<std::byte> write_interpreters(std::span<const python::RuntimeCandidate> candidates);

// What is damaged is left out, and everything behind it.
std::vector<python::RuntimeCandidate> read_interpreters(std::span<const std::byte> body);

}  // namespace rankstacks::small_core
