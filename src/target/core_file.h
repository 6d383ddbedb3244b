// A core file's bytes: mapped, and found by the address they had in the process.
//
//     +------------+  program headers: PT_NOTE (threads, mapped files, ...), and one PT_LOAD for each stretch of memory
//     | ELF header |  p_filesz bytes of it are in the file, from p_offset on. What is behind them up to p_memsz was
//     *not dumped*:
//     +------------+  in a core that is missing memory, never zeros (core(5): coredump_filter; gdb's gcore leaves it
//     out likewise) | notes      | | memory ... |
//     +------------+
//
// gcore writes the notes last, the kernel first. Either may be cut off. No descriptor stays open: of a job there may be
// more cores than one process may have open files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/deadline.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "base/types.h"
#include "model/snapshot.h"

namespace rankstacks {

struct CoreSegment {
  Range range;                     // up to p_memsz
  std::span<const std::byte> bytes;   // from range.start on, as far as the file holds them
  std::uint32_t flags = 0;         // PF_*
};

struct CoreNoteSegment {
  std::uint64_t offset = 0;        // in the (unpacked) file
  std::span<const std::byte> bytes;
  bool cut = false;                // there should be more
};

class CoreFile {
 public:
  // Errors: the file cannot be opened, is no core, is of another machine, or holds not one usable program header. Never blocks.
  // Unpacking a compressed one ends at the deadline, as if it were cut off there.
  static Result<std::unique_ptr<CoreFile>> open(const std::string& path, const Deadline& deadline = Deadline::never());
  CoreFile(const CoreFile&) = delete;
  CoreFile& operator=(const CoreFile&) = delete;

  std::span<const CoreSegment> segments() const { return segments_; }     // by address, without overlaps
  std::span<const CoreNoteSegment> notes() const { return notes_; }

  const CoreSegment* find(Address a) const;                                // the segment that `a` belongs to, dumped or not
  Address next_segment(Address a) const;                                   // the start of the first one behind `a`; the highest address: none
  std::span<const std::byte> view(Address a) const;                        // from `a` to the end of what its segment holds
  std::size_t read(Address address, std::span<std::byte> into) const noexcept;   // across segments; as Target::read
  bool read_exact(Address address, std::span<std::byte> into) const noexcept { return read(address, into) == into.size(); }

  // The notes lie behind the memory, as gdb's gcore writes them.
  bool has_notes_last() const;
  // What the segment of `from` holds from there on is none of the process's memory. Returns how many bytes that were.
  std::uint64_t drop_from(Address from);

  // Every byte that the program headers speak of was there.
  bool is_complete() const { return complete_; }
  // It became shorter, or its disk failed, since it was opened. read() gives nothing of what is lost; views into it have zeros there.
  bool is_damaged_since() const noexcept { return mapped_.has_lost_pages() || held_now() < bytes_.size(); }
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  CoreFile() = default;
  Result<std::uint64_t> header_count();
  std::uint64_t held_now() const noexcept;
  std::optional<Error> index_segments(std::uint64_t count);
  void add_segment(const CoreSegment& segment) { segments_.push_back(segment); }
  void drop_overlaps();
  void report(std::string message, std::string hint);

  std::string subject_;
  std::string path_;   // empty: the mapped file is an unpacked one, without a name
  dev_t device_ = 0;
  ino_t inode_ = 0;
  MappedFile mapped_;
  std::span<const std::byte> bytes_;
  std::vector<CoreSegment> segments_;
  std::vector<CoreNoteSegment> notes_;
  std::vector<Problem> problems_;
  bool complete_ = true;
};

}  // namespace rankstacks
