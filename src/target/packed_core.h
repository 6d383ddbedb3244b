// A packed core, of which only that is kept which a report may need; the rest is unpacked again if it is read.
//
//     core.zst --stream--> | headers, notes | small segments, stacks | pages with pointers |   --> memory without a name
//                                             tensors, texts: left out ....................
//                                             fill(): unpacked once more, from the frame on that has them
//
// A core of a rank has gigabytes of tensors. Python's objects and the C library's are full of pointers, and tensors
// have none: of a segment of 4 MiB or more only pages are kept that have the address of a segment in them, and the
// stacks'. A page that was left out, such as the middle of a long line table, is brought in when it is read. Nothing is
// written to a disk. If the file has zstd's seekable format, frames that lie in one large segment are not unpacked
// until then.
#pragma once

#include <sys/types.h>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/result.h"
#include "target/decompress.h"
#include "target/lazy_memory.h"
#include "target/packed_stream.h"

namespace rankstacks::target {

class PackedCore final : public LazyMemory {
 public:
  struct Opened {
    FileDescriptor file;  // in memory, with holes for zeros and for what is left out; its size is that of the core
    std::optional<Error> damage;       // the stream is broken: the file has what came before the damage
    std::shared_ptr<PackedCore> core;  // nullptr: nothing was left out
  };

  // `packed` is the open file, `path` what it is opened by again. The memory is taken of MemoryUse::kCopies. `refuse`
  // and the deadline: as unpack(). Errors: no memory for the file, or no bytes at all can be unpacked.
  static Result<Opened> open(int packed, Compression compression, const std::string& path, FirstBytesCheck refuse,
                             const Deadline& deadline);
  ~PackedCore() override;
  PackedCore(const PackedCore&) = delete;
  PackedCore& operator=(const PackedCore&) = delete;

  std::uint64_t fill(Address address, std::uint64_t offset, std::uint64_t size) noexcept override;
  std::optional<Problem> shortage() const override;

 private:
  struct FileRange {
    std::uint64_t start = 0, end = 0;
  };
  class FirstPass;

  PackedCore() = default;
  const FileRange* left_out_at(std::uint64_t offset, std::uint64_t end) const noexcept;
  bool bring_in(std::uint64_t offset) noexcept;
  FileDescriptor open_again() const noexcept;
  FileRange around(std::uint64_t offset) const noexcept;
  bool bring_in_piece(std::span<const char> piece, std::uint64_t offset);
  bool take_page() noexcept;

  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  off_t packed_size_ = 0;
  Compression compression_ = Compression::kNone;
  std::vector<PackedFrame> frames_;  // where unpacking may begin, in order
  std::span<char> memory_;           // the file, mapped to be written
  std::int64_t work_left_ = 0;       // bytes that may still be unpacked again
  unsigned further_passes_ = 0;
  std::uint64_t taken_ahead_ = 0;          // bytes of the share of memory that are taken and not used
  Deadline::Clock::duration time_left_{};  // for all further passes
  bool short_of_work_ = false, short_of_memory_ = false;
  std::optional<Error> damage_;      // of a later pass
  std::vector<FileRange> left_out_;  // in order
  mutable std::shared_mutex mutex_;
};

}  // namespace rankstacks::target
