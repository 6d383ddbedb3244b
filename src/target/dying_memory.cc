#include "target/dying_memory.h"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace rankstacks::target {

DyingMemory::DyingMemory(FileDescriptor memory, FileDescriptor file, std::uint64_t size, std::uint64_t most)
    : memory_(std::move(memory)), file_(std::move(file)), left_(most), filled_((size + kPage - 1) / kPage) {}

std::uint64_t DyingMemory::fill(Address address, std::uint64_t offset, std::uint64_t size) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t end = offset + size;
  for (std::uint64_t page = offset / kPage; page * kPage < end && page < filled_.size(); ++page) {
    if (filled_[page]) continue;
    if (!copy_page(address - offset + page * kPage, page * kPage)) {
      incomplete_ = true;
      return std::max(page * kPage, offset) - offset;
    }
    filled_[page] = true;
  }
  return size;
}

// False: the process is gone, or there is no more room.
bool DyingMemory::copy_page(Address address, std::uint64_t offset) noexcept {
  if (left_ < kPage) return false;
  std::array<char, kPage> page;
  ssize_t n;
  do n = pread(memory_.get(), page.data(), page.size(), static_cast<off_t>(address));
  while (n < 0 && errno == EINTR);
  if (n == 0) return false;  // its memory was released
  if (n < 0) return true;
  left_ -= kPage;
  return pwrite(file_.get(), page.data(), static_cast<std::size_t>(n), static_cast<off_t>(offset)) == n;
}

std::optional<Problem> DyingMemory::shortage() const {
  if (!incomplete_) return std::nullopt;
  return Problem{
      "the process ended, or the limit of what is copied of it was reached, before all was read: stacks may "
      "end early",
      "give it more with --memory", ProblemCode::kIncomplete};
}

}  // namespace rankstacks::target
