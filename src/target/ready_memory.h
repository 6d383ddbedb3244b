// Memory that is made ready before a process is stopped, so that neither a page fault nor a growing heap prolongs the
// stop (copy_arena.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace rankstacks::target {

// The memory to allocate before the stop: at least 1 MiB. A waiting thread has 1 to 5 KiB of frames, a Python thread 10
// to 20 KiB including its Python frames and their code. Processes with thousands of threads are native ones.
inline std::size_t usual_copy(std::size_t threads) {
  constexpr std::size_t kPython = 16u << 10, kNative = 4u << 10, kMaxPython = 256, kOther = 512u << 10,
                        kLeast = 1u << 20;
  const std::size_t python = std::min(threads, kMaxPython);
  return std::max(kLeast, kOther + python * kPython + (threads - python) * kNative);
}

// Makes the heap of the calling thread grow by 1 MiB, without touching its pages: where no process is stopped, only
// those are worth their time that are used. The heap stays as large as long as the returned value lives.
inline std::unique_ptr<std::byte[]> grown_heap() {
  constexpr std::size_t kPieces = 16, kPiece = 64u << 10, kLast = 64;
  std::array<std::unique_ptr<std::byte[]>, kPieces> pieces;
  for (auto& piece : pieces) piece.reset(new std::byte[kPiece]);
  return std::unique_ptr<std::byte[]>(new std::byte[kLast]);
}

// Makes the heap of the calling thread grow: afterwards 1 MiB of it is free, and remains part of the heap as long as
// the returned value lives.
inline std::vector<std::byte> warm_heap() {
  constexpr std::size_t kPieces = 16, kPiece = 64u << 10, kLast = 64;
  std::array<std::vector<std::byte>, kPieces> pieces;
  for (auto& piece : pieces) piece.resize(kPiece);
  return std::vector<std::byte>(kLast);
}

}  // namespace rankstacks::target
