// Writes small cores as files of a directory, or as one archive; packed by zstd if the name says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace rankstacks::small_core {

struct NamedCore {
  std::string name;  // "rank-0.core"
  std::vector<std::byte> bytes;
};

// Returns the size of the file.
Result<std::uint64_t> write_core(const std::string& path, const NamedCore& core);

// All of them as one archive, under their names.
Result<std::uint64_t> write_archive(const std::string& path, const std::vector<NamedCore>& cores);

}  // namespace rankstacks::small_core
