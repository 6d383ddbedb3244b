// Bytes copied out of a process: stacks in large pieces, and single pages for everything that is read by following
// pointers.
//
// While it is open, missing bytes are fetched from the process, one page at a time or in batches; after close() only
// the copied bytes are available. The code that walks a target's structures therefore decides what is copied, and no
// walk has to be written twice.
//
// The copy is limited in bytes and in time (copy_limits.h). Memory beyond the limits counts as unreadable, and is_cut()
// reports it. A read may block for as long as another process likes: on a page of a file system that does not answer,
// or of a userfaultfd that nobody serves. So each system call reads a few MiB at most, and if a thread is given, it
// makes the call inside LeavableThread::blocking().
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/leavable_thread.h"
#include "base/types.h"
#include "target/copy_arena.h"
#include "target/copy_limits.h"
#include "target/second_copier.h"

namespace rankstacks::target {

class CopiedMemory {
 public:
  CopiedMemory() = default;
  ~CopiedMemory() { clear(); }
  CopiedMemory(const CopiedMemory&) = delete;
  CopiedMemory& operator=(const CopiedMemory&) = delete;

  // Drops all copies, closes, and sets new limits.
  void clear(CopyLimits limits = {});

  // Copies again, into the same places and by as few calls as possible, everything that was wanted so far, and what
  // could not be copied; of pages of which only a part was wanted, that part. False if that was ended before it was
  // done: then the copies are dropped. By the reading thread.
  bool refresh();

  // Makes the list of what refresh() copies, before anything is held for that: refresh() comes next. `standing`: ranges
  // by address, apart from each other; pieces of stacks within one of these stay as they are.
  void plan_refresh(std::span<const Range> standing = {});
  // Reads what is planned, if that is not much, to no effect but that the kernel has its tables of this memory in a
  // processor's cache, and refresh() takes less time.
  void touch_planned();

  // refresh() copies all of each page that was wanted, and not only that part.
  void keep_whole_pages() { whole_pages_ = true; }

  // What is read until the next call is not copied again by refresh(), unless it is read at other times as well.
  void read_for_once(bool on) { for_once_ = on; }

  // What is needed was copied: nothing is fetched until refresh(), release() or open(). Afterwards has_missed() says
  // whether a read wanted a page that nobody had wanted before.
  void hold() {
    holds_ = true;
    missed_ = false;
    plan_.reset();
  }
  bool has_missed() const { return missed_; }
  // From now on missing pages are fetched again.
  void release() { holds_ = missed_ = false; }

  // `tid`: any live thread of the process (the main thread may have ended before the others). `reader`: the only thread
  // that reads until close(); nullptr: any thread may read.
  void open(Tid tid, LeavableThread* reader = nullptr);
  void close();

  // May be called by another thread at any time: nothing is fetched from now on, and the results of a read in progress
  // are ignored. close() still has to be called.
  void end_fetching() { fetches_ = false; }

  // For when the reading thread will not return from the kernel: the memory that its call may still write to is never
  // freed.
  void abandon_read() { arena_.keep_for_ever(); }

  // From how many pieces on a second thread helps: waking it takes as long as copying ten.
  static constexpr std::size_t kWorthTwo = 64;
  // That thread; nullptr: none. Called while the reading thread waits.
  void share_with(std::shared_ptr<SecondCopier::Shared> second) { second_ = std::move(second); }
  // How many bytes were taken from the limits.
  std::size_t bytes() const { return taken_; }
  // How many pieces refresh() copies.
  std::size_t pieces() const { return regions_.size() + pages_.size() + missing_.size(); }

  // Allocates memory for this many bytes in advance, so that the copying itself allocates nothing.
  void reserve(std::size_t bytes) { arena_.reserve(bytes); }

  // Copies stacks, each from its innermost end. If the limits do not suffice for all of them, each gets the same
  // amount: first a number of KiB of every stack, then more. Unreadable memory is left out; of a stack that is readable
  // only in its first part, that part is kept. `spared`: the bytes of the limits to keep for later copies.
  void copy_stacks(std::span<const Range> stacks, std::size_t spared = 0);

  // Calls `visit` with the pieces that copy_stacks() copied.
  template <class Visit>
  void for_each_stack_piece(Visit&& visit) const {
    for (const Region& r : regions_) visit(r.range, std::span<const std::byte>(r.bytes, r.range.size()));
  }

  // Fetches those pages of `ranges` that have not been copied yet.
  void fetch_pages(std::span<const Range> ranges);

  // Like Target::read: reads from the copies, and fetches missing pages while open.
  std::size_t read(Address address, std::span<std::byte> into);

  // Reads ranges of one size, one after the other, into `into`, without keeping them as copies. Those that cannot be
  // read are left as they are.
  void peek(std::span<const Address> addresses, std::size_t size, std::span<std::byte> into);

  // Copies bytes of a mapped file, whose file system may not answer either: if there is a reader, it may never return
  // from this.
  void copy_from_file(std::span<const std::byte> bytes, std::byte* into) const;

  // Whether some stacks or single pages were left out because of the limit in bytes.
  bool is_cut() const { return stacks_left_out_ > 0 || pages_left_out_; }
  std::size_t stack_bytes_left_out() const { return stacks_left_out_; }  // because of either limit

 private:
  struct Region {
    Range range;
    std::byte* bytes = nullptr;  // in arena_, like the pages
  };
  struct Piece {
    Range range;
    std::byte* into = nullptr;
  };

  // Parts of a page, in bytes from its start.
  struct Part {
    std::uint16_t from, to;
    void add(std::size_t first, std::size_t end) {
      from = static_cast<std::uint16_t>(from < first ? from : first);
      to = static_cast<std::uint16_t>(to > end ? to : end);
    }
  };
  struct Page {
    std::byte* bytes = nullptr;
    Part copied{0, 4096};  // that are copies of the last reading
    Part wanted{4096, 0};  // that were read, from the first to the last
    bool for_once = false;
    bool is_missed = false;  // it is for once, and others wanted it
    bool is_old = false;     // it is for once, and refresh() has passed over it
  };

  // A stack that is being copied: everything before `at` has been copied.
  struct Rest {
    Range stack;
    Address at;
  };

  // What refresh() copies: pieces of stacks, then others.
  struct Plan {
    std::vector<Piece> pieces;
    std::vector<Region*> stacks;
  };

  std::vector<Rest> not_copied_of(std::span<const Range> apart) const;
  void share_among(std::vector<Range>& ranges, std::size_t allowed);

  // The copied bytes from `address` on, as far as they are contiguous; empty if that address was not copied.
  std::span<const std::byte> at(Address address) const;

  // Pieces of a list that have not been requested yet.
  struct Unasked {
    std::size_t first, end;
  };
  // A call for pieces that follow each other.
  struct Request {
    std::size_t first;
    const CopyCall* call;
  };
  struct RequestLimits {
    std::size_t pieces, bytes;
  };
  static Request next_request(std::span<const Piece> pieces, std::vector<Unasked>& left, CopyCall& call,
                              RequestLimits limits);
  static void note_copied(const Request& request, std::vector<Unasked>& left, std::vector<std::size_t>& copied);

  // Returns the number of bytes copied for each piece.
  std::vector<std::size_t> read_pieces(std::span<const Piece> pieces);

  void drop_copies();
  bool read_at_all_times(Address page);
  void fetch(std::span<const Range> ranges);

  // Takes as many of these bytes from the limits as they have left, and returns that number.
  std::size_t allow(std::size_t bytes);
  void give_back(std::size_t bytes);

  Tid tid_ = 0;  // 0: closed
  std::atomic<bool> fetches_{false};
  LeavableThread* reader_ = nullptr;
  std::shared_ptr<SecondCopier::Shared> second_;
  CopyLimits limits_;
  std::size_t taken_ = 0, of_pool_ = 0;
  CopyArena arena_;
  std::vector<Region> regions_;                      // sorted by start
  std::unordered_map<Address, Page> pages_;          // by page address
  std::unordered_map<Address, std::byte*> missing_;  // pages that could not be fetched, with room for them
  std::optional<Plan> plan_;
  std::size_t stacks_left_out_ = 0;
  bool pages_left_out_ = false;
  bool holds_ = false, missed_ = false, whole_pages_ = false, for_once_ = false, has_for_once_ = false;
};

}  // namespace rankstacks::target
