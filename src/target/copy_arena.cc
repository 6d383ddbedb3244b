#include "target/copy_arena.h"

#include <sys/mman.h>
#include <algorithm>
#include <new>

namespace rankstacks::target {
namespace {

// The size of a chunk, for requests that are smaller: the first ones are as large as what is copied of most processes.
constexpr std::size_t kFirstChunk = 256u << 10, kChunk = 1u << 20;
constexpr std::size_t kAlignment = 16;
// Up to here pages are populated at once; a larger request is for a stack of which only a part may be readable.
constexpr std::size_t kPopulated = 64u << 20;

}  // namespace

void CopyArena::Unmap::operator()(std::byte* p) const {
  if (!keeps) munmap(p, size);
}

void CopyArena::keep_for_ever() {
  for (auto& chunk : chunks_) chunk.get_deleter().keeps = true;
}

void CopyArena::add_chunk(std::size_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | (size <= kPopulated ? MAP_POPULATE : 0), -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  chunks_.push_back(std::unique_ptr<std::byte[], Unmap>(static_cast<std::byte*>(p), Unmap{size}));
  used_ = 0;
  size_ = size;
  in_all_ += size;
}

void CopyArena::reserve(std::size_t bytes) {
  if (size_ - used_ < bytes) add_chunk(bytes);
}

std::byte* CopyArena::take(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) & ~(kAlignment - 1);
  if (rounded < bytes) throw std::bad_alloc();
  if (size_ - used_ < rounded) add_chunk(std::max(rounded, std::clamp(in_all_, kFirstChunk, kChunk)));
  std::byte* p = chunks_.back().get() + used_;
  used_ += rounded;
  return p;
}

}  // namespace rankstacks::target
