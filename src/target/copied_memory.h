// Bytes copied out of a process: stacks in large pieces and single pages (everything that is read by following pointers).
//
// While `open`, what is missing is fetched from the process, a page at a time or in batches; after close() only what was copied is there.
// So the code that walks a target's structures is what decides what gets copied, and no walk is written twice.
//
// What is copied has limits (copy_limits.h), in bytes and in time; what is beyond them is not there, as if it could not be read, and is_cut() says so.
// Reading may block for as long as another process likes: a page of a file system that does not answer, of a userfaultfd that nobody serves. So each
// system call reads a few MiB at most, and is made inside of LeavableThread::blocking() where a thread is given.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/leavable_thread.h"
#include "base/types.h"
#include "target/copy_arena.h"
#include "target/copy_limits.h"

namespace rankstacks {

class CopiedMemory {
 public:
  CopiedMemory() = default;
  ~CopiedMemory() { clear(); }
  CopiedMemory(const CopiedMemory&) = delete;
  CopiedMemory& operator=(const CopiedMemory&) = delete;

  // Forgets everything; it is closed, and has these limits.
  void clear(CopyLimits limits = {});

  // `tid`: any live thread of the process (the main thread may have ended before the others). `reader`: the thread by which everything is
  // read until close(), nullptr: any.
  void open(Tid tid, LeavableThread* reader = nullptr);
  void close();

  // From another thread, at any moment: nothing is fetched from now on, and of a read that is under way nothing counts. close() is still to follow.
  void end_fetching() { fetches_ = false; }

  // The thread that was reading will not come back from the kernel: what its call may still write to is never freed.
  void abandon_read() { arena_.keep_for_ever(); }

  // Makes room for this many bytes, so that copying them is copying alone.
  void reserve(std::size_t bytes) { arena_.reserve(bytes); }

  // Copies stacks, each from its innermost end on. Where the limits do not suffice for all of them each gets the same: first so many KiB of every one,
  // then more. What cannot be read is left out; a stack that is readable only in its first part is kept as far as it goes. `spared`: bytes of
  // the limits that are for later.
  void copy_stacks(std::span<const Range> stacks, std::size_t spared = 0);

  // What was copied by copy_stacks(), in pieces.
  template <class Look>
  void for_each_stack_piece(Look&& look) const {
    for (const Region& r : regions_) look(r.range, std::span<const std::byte>(r.bytes, r.range.size()));
  }

  // Fetches the pages of `ranges` that are not here yet.
  void fetch_pages(std::span<const Range> ranges);

  // As Target::read, from what is here, fetching missing pages while open.
  std::size_t read(Address address, std::span<std::byte> into);

  // Bytes of a mapped file, whose file system may not answer either: while there is a reader, its copy may never come back.
  void copy_from_file(std::span<const std::byte> bytes, std::byte* into) const;

  // Whether something was left out, of stacks or of single pages, because of the limit in bytes.
  bool is_cut() const { return stacks_left_out_ > 0 || pages_left_out_; }
  std::size_t stack_bytes_left_out() const { return stacks_left_out_; }   // because of either limit

 private:
  struct Region {
    Range range;
    std::byte* bytes = nullptr;                       // in arena_, as are the pages
  };
  struct Piece {
    Range range;
    std::byte* into = nullptr;
  };

  // A stack that is being copied: all before `at` is here.
  struct Rest {
    Range stack;
    Address at;
  };

  std::vector<Rest> not_copied_of(std::span<const Range> apart) const;
  void share_among(std::vector<Range>& ranges, std::size_t allowed);

  // The bytes at `address` as far as they lie together, or empty.
  std::span<const std::byte> at(Address address) const;

  // The bytes copied of each piece.
  std::vector<std::size_t> read_pieces(std::span<const Piece> pieces);

  // As many of these bytes as the limits leave; they are taken from them.
  std::size_t allow(std::size_t bytes);
  void give_back(std::size_t bytes);

  Tid tid_ = 0;                                       // 0: closed
  std::atomic<bool> fetches_{false};
  LeavableThread* reader_ = nullptr;
  CopyLimits limits_;
  std::size_t taken_ = 0, of_pool_ = 0;
  CopyArena arena_;
  std::vector<Region> regions_;                       // sorted by start
  std::unordered_map<Address, std::byte*> pages_;           // by page address
  std::unordered_set<Address> missing_;               // pages asked for in vain
  std::size_t stacks_left_out_ = 0;
  bool pages_left_out_ = false;
};

}  // namespace rankstacks
