// A core that the kernel writes into a pipe: ELF header, program headers, notes, then the memory.
#pragma once

#include <cstdint>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/result.h"

namespace rankstacks::cli {

struct CoreHead {
  FileDescriptor file;      // in memory: the bytes up to the end of the notes, then holes for the memory
  std::uint64_t bytes = 0;  // that were read
  std::uint64_t size = 0;   // of the core, as its program headers say
};

// Reads no more than 256 MiB, and nothing behind the notes. Errors: it is no core, its notes are not first, it ends too
// early, or does not come in time.
Result<CoreHead> read_core_head(int stream, const Deadline& deadline);

// Up to `size` bytes. Fewer: it ended. Errors: the time is over, or it cannot be read.
Result<std::size_t> read_stream(int stream, void* into, std::size_t size, const Deadline& deadline);

}  // namespace rankstacks::cli
