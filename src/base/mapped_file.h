// A file mapped for reading that may be truncated, or lose its disk, while it is read.
//
// The kernel answers a read beyond the end of a mapped file, or one that the disk fails, with SIGBUS. A handler then
// maps a page of zeros at the address and marks the mapping, so that the read continues:
//
//     file, as mapped   | page | page | page | page |
//     file, cut later   | page | pa   :                read -> SIGBUS -> | page | pa.. | 0000 | 0000 |   has_lost_pages()
//
// What was read since then may be wrong, and the code that shows it has to say so. A SIGBUS at any other address has
// the effect that it had before.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace rankstacks {
inline namespace base {

class MappedFile {
 public:
  MappedFile() = default;
  // Maps the first `size` bytes (more than 0) of the open file, which may be closed afterwards. std::nullopt if mmap
  // failed; errno says why.
  static std::optional<MappedFile> map(int descriptor, std::size_t size);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  bool has_lost_pages() const noexcept;
  // The offset of the lowest page that was replaced by zeros; the size of the mapping if none was.
  std::size_t first_lost() const noexcept;

 private:
  struct Watched;
  friend struct BusErrors;
  std::span<const std::byte> bytes_;
  Watched* watched_ = nullptr;
};

}  // namespace base
}  // namespace rankstacks
