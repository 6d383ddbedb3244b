// Reads what the frameworks in a process say of its rank: jax.distributed's state, the world of vLLM or SGLang,
// PyTorch's default process group; and of its place among the others, by the process groups of each axis. A rank that
// its program has numbered by an argument has no variable that says so.
//
//     interpreter -> sys.modules -> a module -> its globals -> an object -> an attribute
//
// The process may run meanwhile: what is read is either consistent in itself or left out.
#pragma once

#include <map>
#include <span>
#include <string>

#include "python/python.h"

namespace rankstacks::python {

// By the names of known::rank_values(); known::kTorchRank with known::kTorchWorldSize; known::kLayoutFramework with one
// value of known::kLayoutAxis for each axis. Empty if the process has no
// interpreter, or if none of these modules is loaded, or none has a rank yet.
std::map<std::string, std::string> read_rank_values(const target::Target& target,
                                                    std::span<const RuntimeCandidate> candidates);

}  // namespace rankstacks::python
