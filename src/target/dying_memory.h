// The memory of a process whose core the kernel writes into a pipe, and that stays as long as nobody reads the pipe to
// its end.
//
//     pipe:  | ELF header, notes |  --->  file with holes for the memory, mapped as any core is
//     /proc/PID/mem, where the analysis looks:  --->  the pages of these holes
//
// So the analysis reads the few megabytes that it wants, and never the whole core.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/file_descriptor.h"
#include "base/types.h"
#include "target/lazy_memory.h"

namespace rankstacks::target {

class DyingMemory final : public LazyMemory {
 public:
  // `memory`: of /proc/PID/mem. `file`: has `size` bytes; at most `most` bytes of memory are copied into it.
  DyingMemory(FileDescriptor memory, FileDescriptor file, std::uint64_t size, std::uint64_t most);

  // Pages that the process itself cannot read are zeros, as in the core.
  std::uint64_t fill(Address address, std::uint64_t offset, std::uint64_t size) noexcept override;

  // The process was gone, or the limit was reached.
  std::optional<Problem> shortage() const override;

 private:
  static constexpr std::uint64_t kPage = 4096;
  bool copy_page(Address address, std::uint64_t offset) noexcept;

  FileDescriptor memory_, file_;
  std::uint64_t left_;
  std::mutex mutex_;
  std::vector<bool> filled_;  // by the file's pages
  std::atomic<bool> incomplete_{false};
};

}  // namespace rankstacks::target
