// How much may be copied of a process while it stands still, and how long that may take: whatever its memory looks like, the process goes on in
// time, and the tool has room for it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

#include "base/deadline.h"

namespace rankstacks {

// Bytes that the processes of one run share: what one does not need of its part is there for the others. Thread-safe.
class CopyPool {
 public:
  explicit CopyPool(std::size_t bytes) : left_(bytes) {}

  // As many of these bytes as there are.
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
  // Of one process, stacks and all else that is read of it: a thousand threads with 512 KiB of frames each. A training rank's copy has 5 to 20 MiB.
  static constexpr std::size_t kMax = 512u << 20;
  // From the first thread's stop to the last one's going on. A sound process stands still for milliseconds.
  static constexpr std::chrono::seconds kLongestStop{2};

  std::size_t own = kMax;                 // its part, which nobody else takes
  std::shared_ptr<CopyPool> pool;          // what it may take beyond that, up to kMax in all; may be nullptr
  std::chrono::steady_clock::duration longest = kLongestStop;

  // For one of `processes` that share `bytes`: half of it is in equal parts, the other half is whose who needs it.
  static CopyLimits share(std::size_t bytes, std::size_t processes, std::shared_ptr<CopyPool> pool) {
    const std::size_t part = bytes / 2 / (processes == 0 ? 1 : processes);
    return {.own = part < kMax ? part : kMax, .pool = std::move(pool)};
  }
};

}  // namespace rankstacks
