// A packed core, of which only that is kept which a report may need; the rest is unpacked again if it is read.
//
//     core.zst --stream--> | headers, notes | small segments, stacks | pages with pointers |   --> memory without a name
//                                             tensors, texts: left out ....................
//                                             fill(): unpacked once more, from the frame on that has them
//
// A core of a rank has gigabytes of tensors. Python's objects and the C library's are full of pointers, and tensors
// have none: of a segment of 4 MiB or more only pages are kept that have the address of a segment in them, its
// beginning, and the stacks. A page that was left out, such as the middle of a long line table, is brought in when it
// is read. If the file has zstd's seekable format, frames that lie in one large segment are not unpacked until then.
//
// What is kept is in memory, as long as the share for it lasts (MemoryUse::kCopies), and from then on in a temporary
// file (SparseFile).
#pragma once

#include <sys/stat.h>
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
    FileDescriptor file;               // with holes for zeros and for what is left out; its size is that of the core
    std::optional<Error> damage;       // the stream is broken, or there is no room: the file has what came before
    std::shared_ptr<PackedCore> core;  // has to stay as long as the file is used
  };

  // `packed` is the open file, `path` what it is opened by again. `refuse` and the deadline: as unpack(). Errors: no
  // memory for the file, or no bytes at all can be unpacked.
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
  void leave_out(FileRange range);
  const FileRange* left_out_at(std::uint64_t offset, std::uint64_t end) const noexcept;
  FileRange around(std::uint64_t offset);
  bool bring_in(std::uint64_t offset) noexcept;
  bool unpack_again(std::uint64_t offset, FileRange wanted);
  bool bring_in_piece(std::span<const char> piece, std::uint64_t offset);
  bool give_up(std::string why, std::string hint);

  std::string path_;
  struct stat packed_status_ {};
  Compression compression_ = Compression::kNone;
  std::vector<PackedFrame> frames_;  // where unpacking may begin, in order
  std::span<char> memory_;           // the file, mapped to be written; empty: nothing was left out
  bool on_disk_ = false;
  std::uint64_t taken_ = 0;  // bytes of the share of memory
  unsigned further_passes_ = 0;
  std::int64_t work_left_ = 0;             // bytes that may still be unpacked again
  Deadline::Clock::duration time_left_{};  // for unpacking again
  std::optional<Problem> shortage_;        // nothing more is brought in
  std::vector<FileRange> left_out_;        // in order
  mutable std::shared_mutex mutex_;
};

}  // namespace rankstacks::target
