// Memory of a core that is brought into its file when it is read.
#pragma once

#include <cstdint>
#include <optional>

#include "base/types.h"
#include "model/snapshot.h"

namespace rankstacks::target {

class LazyMemory {
 public:
  virtual ~LazyMemory() = default;

  // Makes the file's bytes from `offset` on those of the process from `address` on, where they are holes yet. Returns
  // how many of the `size` bytes may be read then. Several threads may call it.
  virtual std::uint64_t fill(Address address, std::uint64_t offset, std::uint64_t size) noexcept = 0;

  // Why something that was asked for could not be had; std::nullopt: all of it could.
  virtual std::optional<Problem> shortage() const = 0;
};

}  // namespace rankstacks::target
