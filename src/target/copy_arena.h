// The memory for copies of a stopped process. It is allocated before the stop, so that no page fault and no growing
// heap prolongs it. (malloc on a thread other than the first grows its heap page by page, by mprotect(): at 160 Python
// threads that took longer than the copying.)
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace rankstacks::target {

class CopyArena {
 public:
  // Makes sure that take() needs no system call for the next `bytes` bytes.
  void reserve(std::size_t bytes);

  // Keeps what was taken so far even when the arena is destroyed: the kernel may still write to it.
  void keep_for_ever();

  // Never nullptr; lives as long as the arena. Throws std::bad_alloc.
  std::byte* take(std::size_t bytes);

 private:
  struct Unmap {
    std::size_t size = 0;
    bool keeps = false;
    void operator()(std::byte* p) const;
  };
  void add_chunk(std::size_t size);

  std::vector<std::unique_ptr<std::byte[], Unmap>> chunks_;
  std::size_t used_ = 0, size_ = 0;  // of the last chunk
  std::size_t in_all_ = 0;           // of all chunks
};

}  // namespace rankstacks::target
