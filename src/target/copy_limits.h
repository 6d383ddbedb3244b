// How much may be copied of a process while it is paused, and how long that may take. Whatever its memory looks like,
// the process continues in time, and the tool has room for the copy.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

#include "base/deadline.h"

namespace rankstacks::target {

// A number of bytes that the processes of one run share: what one process does not need of it is left for the others.
// Thread-safe.
class CopyPool {
 public:
  explicit CopyPool(std::size_t bytes) : left_(bytes) {}

  // Takes this many bytes, or as many as are left, and returns their number.
  std::size_t take(std::size_t bytes) {
    std::size_t left = left_.load();
    while (!left_.compare_exchange_weak(left, left - (left < bytes ? left : bytes))) {}
    return left < bytes ? left : bytes;
  }
  void give_back(std::size_t bytes) { left_ += bytes; }

 private:
  std::atomic<std::size_t> left_;
};

struct CopyLimits {
  // For one process, its stacks and everything else that is read of it: a thousand threads with 512 KiB of frames each.
  // The copy of a training rank has 5 to 20 MiB.
  static constexpr std::size_t kMax = 512u << 20;
  // From the stop of the first thread until the last one continues. A healthy process is paused for milliseconds.
  static constexpr std::chrono::seconds kLongestStop{2};

  std::size_t own = kMax;          // its own part, which no other process takes
  std::shared_ptr<CopyPool> pool;  // for what it needs beyond that, up to kMax in total; may be nullptr
  std::chrono::steady_clock::duration longest = kLongestStop;

  // The limits of one of `processes` processes that share `bytes`: half is divided into equal parts, the other half
  // goes to the processes that need it.
  static CopyLimits share(std::size_t bytes, std::size_t processes, std::shared_ptr<CopyPool> pool) {
    const std::size_t part = bytes / 2 / (processes == 0 ? 1 : processes);
    return {.own = part < kMax ? part : kMax, .pool = std::move(pool)};
  }
};

}  // namespace rankstacks::target
