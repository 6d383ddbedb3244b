// A file mapped for reading that may become shorter, or lose its disk, while it is read.
//
// The kernel answers a read behind the end of a mapped file, or one that its disk fails, with SIGBUS. A handler then puts a page of zeros
// under the address and notes that in the mapping, so that the read goes on:
//
//     file, as mapped   | page | page | page | page |
//     file, cut later   | page | pa   :                read -> SIGBUS -> | page | pa.. | 0000 | 0000 |   has_lost_pages()
//
// What was read since then may be wrong; whoever shows it has to say so. A SIGBUS elsewhere does what it did before.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace rankstacks {

class MappedFile {
 public:
  MappedFile() = default;
  // The first `size` bytes (more than 0) of the open file; it may be closed afterwards. Nothing: mmap failed, errno says why.
  static std::optional<MappedFile> map(int descriptor, std::size_t size);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  bool has_lost_pages() const noexcept;
  // The offset of the lowest page in whose place zeros were put; the size where none was.
  std::size_t first_lost() const noexcept;

 private:
  struct Watched;
  friend struct BusErrors;
  std::span<const std::byte> bytes_;
  Watched* watched_ = nullptr;
};

}  // namespace rankstacks
