// The bytes of a core file: mapped, and found by their addresses in the process.
//
//     +------------+  program headers: PT_NOTE (threads, mapped files, ...), and one PT_LOAD for each range of memory:
//     | ELF header |  its p_filesz bytes are in the file, from p_offset on. The bytes behind them, up to p_memsz, were
//     +------------+  *not dumped*: in a core that is missing memory, never zeros (core(5): coredump_filter; gdb's
//     | notes      |  gcore leaves it out in the same way)
//     | memory ... |
//     +------------+
//
// gcore writes the notes last, the kernel writes them first. Either may be cut off. No descriptor stays open: a job may
// have more cores than one process may have open files.
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "base/types.h"
#include "model/snapshot.h"
#include "target/lazy_memory.h"

namespace rankstacks::target {

struct CoreSegment {
  Range range;                       // up to p_memsz
  std::span<const std::byte> bytes;  // from range.start, as far as the file has them
  std::uint32_t flags = 0;           // PF_*
};

struct CoreNoteSegment {
  std::uint64_t offset = 0;  // in the (unpacked) file
  std::span<const std::byte> bytes;
  bool cut = false;  // some bytes are missing
};

class CoreFile {
 public:
  // Errors: the file cannot be opened, is not a core, is of another machine, or has no usable program header. Never
  // blocks. The unpacking of a compressed core ends at the deadline, as if the core were cut off there.
  // `memory`: fills in the segments, which are holes in the file; nullptr: the file has them.
  static Result<std::unique_ptr<CoreFile>> open(const std::string& path, const Deadline& deadline = Deadline::never(),
                                                std::shared_ptr<LazyMemory> memory = nullptr);
  CoreFile(const CoreFile&) = delete;
  CoreFile& operator=(const CoreFile&) = delete;

  std::span<const CoreSegment> segments() const { return segments_; }  // by address, without overlaps
  std::span<const CoreNoteSegment> notes() const { return notes_; }

  // The segment that contains `a`, dumped or not.
  const CoreSegment* find(Address a) const;
  // The start of the first segment behind `a`; the highest address if there is none.
  Address next_segment(Address a) const;
  // From `a` to the end of the bytes that its segment has: the first `most` of them, or what of these could be had.
  std::span<const std::byte> view(Address a, std::uint64_t most) const { return bytes_at(a, most); }
  std::size_t read(Address address, std::span<std::byte> into) const noexcept;  // across segments; like Target::read
  bool read_exact(Address address, std::span<std::byte> into) const noexcept {
    return read(address, into) == into.size();
  }

  // Whether the notes are behind the memory, where gdb's gcore writes them.
  bool has_notes_last() const;
  // Declares the bytes of a segment from `from` on not to be memory of the process. Returns their number.
  std::uint64_t drop_from(Address from);

  // Whether every byte that the program headers mention was in the file.
  bool is_complete() const { return complete_; }
  // Whether the file was truncated, or its disk failed, since it was opened. read() returns nothing of what is lost;
  // views into it have zeros there.
  bool is_damaged_since() const noexcept { return mapped_.has_lost_pages() || held_now() < bytes_.size(); }
  // Why memory that was to be brought into the file could not be had.
  std::optional<Problem> shortage() const { return memory_ ? memory_->shortage() : std::nullopt; }
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  // What the program headers mention and the file does not have, or what is left out of it.
  struct Losses {
    std::uint64_t expected = 0;                    // the end of the last byte that they mention
    std::uint64_t segments = 0, cut_segments = 0;  // of memory
    std::uint64_t memory = 0;                      // bytes that the cut ones lack
    std::uint64_t absurd = 0, first_absurd = 0;    // headers whose numbers overflow; where the first of them is
    std::uint64_t notes = 0, left_out_notes = 0;   // bytes; notes: those that are read
    bool notes_cut = false;
  };

  CoreFile() = default;
  Result<std::uint64_t> header_count();
  std::uint64_t held_now() const noexcept;
  // The first `most` bytes from `a` on, filled in if need be.
  std::span<const std::byte> bytes_at(Address a, std::uint64_t most) const noexcept;
  std::optional<Error> index_segments(std::uint64_t count);
  void add_notes(std::uint64_t offset, std::uint64_t size, Losses& losses);
  void report_losses(const Losses& losses);
  void add_segment(const CoreSegment& segment) { segments_.push_back(segment); }
  void drop_overlaps();
  void report(std::string message, std::string hint);

  std::string subject_;
  std::string path_;  // empty: the mapped file is an unpacked one, which has no name
  dev_t device_ = 0;
  ino_t inode_ = 0;
  MappedFile mapped_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<LazyMemory> memory_;
  std::vector<CoreSegment> segments_;
  std::vector<CoreNoteSegment> notes_;
  std::vector<Problem> problems_;
  bool complete_ = true;
};

}  // namespace rankstacks::target
