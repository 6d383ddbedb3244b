// Kernels of libraries other than NCCL that poll on the GPU until the other ranks have arrived.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "known/kinds.h"

namespace rankstacks::known {

struct CollectiveKernel {
  std::string_view part;  // of the kernel's demangled name, without its arguments
  Collective operation;   // kUnknown if the name does not tell which it is
  std::string_view source;
};

// In the order in which they are tried.
std::span<const CollectiveKernel> collective_kernels();

// The operation of the first of them that the name contains; std::nullopt if none does.
std::optional<Collective> operation_of_kernel(std::string_view name);

}  // namespace rankstacks::known
