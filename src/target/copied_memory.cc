#include "target/copied_memory.h"

#include <sys/uio.h>
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

namespace rankstacks::target {
namespace {

constexpr std::size_t kPage = 4096;
constexpr Address kLastPage = ~Address{0} & ~Address{kPage - 1};  // the kernel owns it
// Limits of one call: iovecs (the kernel takes 1024, UIO_MAXIOV), and bytes: a millisecond of copying, after which it
// is seen whether the time is over. Two threads together begin no further call beyond that.
constexpr std::size_t kMaxBatch = 1000, kMaxOfCall = 4u << 20;
// How many pieces one of two threads copies before it takes more: some 15 us of work.
constexpr std::size_t kShare = 8;
// What is more does not stay in a processor's cache.
constexpr std::size_t kMaxTouched = 8u << 20;
// A pointer chain that leads into a page is likely to continue in the following ones: Python allocates frames and
// objects in arenas.
constexpr std::size_t kReadAhead = 2;
// How much of each stack is copied first, before more is taken of any. Nearly all threads use less than kFirstOfStack,
// and are read by one call.
constexpr std::size_t kFirstOfStack = 32u << 10, kMaxOfTurn = 1u << 20;

// The size of the next turn for one stack. A turn ends at a page boundary, so that each page is read once.
std::size_t turn_after(std::size_t done) { return std::min(std::max(kFirstOfStack, 3 * done), kMaxOfTurn); }
Address end_of_turn(const Range& stack, Address from, std::size_t turn) {
  return stack.end - from <= turn + kPage ? stack.end : ((from + turn) & ~Address{kPage - 1});
}

}  // namespace

void CopiedMemory::clear(CopyLimits limits) {
  close();
  drop_copies();
  limits_ = std::move(limits);
}

void CopiedMemory::drop_copies() {
  if (limits_.pool) limits_.pool->give_back(of_pool_);
  taken_ = of_pool_ = 0;
  regions_ = {};
  pages_ = {};
  missing_ = {};
  plan_.reset();
  arena_ = CopyArena();
  stacks_left_out_ = 0;
  pages_left_out_ = has_for_once_ = missed_ = false;
}

namespace {

bool is_within_one(const Range& range, std::span<const Range> sorted) {
  const auto after = std::upper_bound(sorted.begin(), sorted.end(), range.start,
                                      [](Address start, const Range& r) { return start < r.start; });
  return after != sorted.begin() && range.end <= std::prev(after)->end;
}

}  // namespace

void CopiedMemory::plan_refresh(std::span<const Range> standing) {
  std::erase_if(pages_, [](const auto& page) { return page.second.wanted.to == 0; });
  Plan plan;
  std::vector<Piece>& pieces = plan.pieces;
  pieces.reserve(regions_.size() + pages_.size() + missing_.size());
  plan.stacks.reserve(regions_.size());
  for (Region& region : regions_) {
    if (is_within_one(region.range, standing)) continue;
    plan.stacks.push_back(&region);
    pieces.push_back({region.range, region.bytes});
  }
  for (auto& [page, copy] : pages_) {
    if (std::exchange(copy.is_missed, false)) copy.for_once = false;
    if (copy.for_once) continue;
    if (whole_pages_) copy.wanted = {0, kPage};
    pieces.push_back({{page + copy.wanted.from, page + copy.wanted.to}, copy.bytes + copy.wanted.from});
  }
  // Pages that follow each other are copied by fewer steps of the kernel.
  std::sort(pieces.begin() + static_cast<std::ptrdiff_t>(plan.stacks.size()), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.range.start < b.range.start; });
  // Each of these ends a call, if it is still not there.
  for (const auto& [page, bytes] : missing_) pieces.push_back({{page, page + kPage}, bytes});
  plan_ = std::move(plan);
}

void CopiedMemory::touch_planned() {
  if (!plan_) return;
  std::size_t longest = 0, all = 0;
  for (const Piece& piece : plan_->pieces) {
    longest = std::max(longest, piece.range.size());
    all += piece.range.size();
  }
  if (all > kMaxTouched) return;
  std::vector<std::byte> nowhere(longest);
  std::vector<Piece> pieces = plan_->pieces;
  for (Piece& piece : pieces) piece.into = nowhere.data();
  read_pieces(pieces);
}

bool CopiedMemory::refresh() {
  if (!plan_) plan_refresh();
  const Plan plan = *std::exchange(plan_, std::nullopt);
  holds_ = missed_ = false;
  const std::vector<std::size_t> copied = read_pieces(plan.pieces);
  if (!fetches_) {
    drop_copies();
    return false;
  }
  for (auto& [page, copy] : pages_) copy.is_old = copy.for_once;
  for (std::size_t i = 0; i < plan.stacks.size(); ++i)
    plan.stacks[i]->range.end = plan.stacks[i]->range.start + copied[i];
  std::erase_if(regions_, [](const Region& region) { return region.range.size() == 0; });
  for (std::size_t i = plan.stacks.size(); i < plan.pieces.size(); ++i) {
    const Piece& piece = plan.pieces[i];
    const Address address = piece.range.start & ~(kPage - 1);
    const bool is_whole = copied[i] == piece.range.size();
    const auto page = pages_.find(address);
    if (page != pages_.end()) {
      page->second.copied = page->second.wanted;
      if (is_whole) continue;
      missing_.emplace(address, page->second.bytes);
      pages_.erase(page);
    } else if (is_whole) {
      pages_.emplace(address, Page{piece.into});
      missing_.erase(address);
    }
  }
  return true;
}

void CopiedMemory::open(Tid tid, LeavableThread* reader) {
  tid_ = tid;
  reader_ = reader;
  fetches_ = true;
  holds_ = for_once_ = false;  // an abandoned reader may have left the latter
}

void CopiedMemory::close() {
  tid_ = 0;
  reader_ = nullptr;
  second_ = nullptr;
  fetches_ = holds_ = false;
}

std::size_t CopiedMemory::allow(std::size_t bytes) {
  bytes = std::min(bytes, CopyLimits::kMax - std::min(CopyLimits::kMax, taken_));
  const std::size_t own_left = limits_.own - std::min(limits_.own, taken_ - of_pool_);
  const std::size_t of_own = std::min(bytes, own_left);
  const std::size_t of_pool = bytes > of_own && limits_.pool ? limits_.pool->take(bytes - of_own) : 0;
  taken_ += of_own + of_pool;
  of_pool_ += of_pool;
  return of_own + of_pool;
}

void CopiedMemory::give_back(std::size_t bytes) {
  const std::size_t to_pool = std::min(bytes, of_pool_);
  if (to_pool > 0) limits_.pool->give_back(to_pool);
  of_pool_ -= to_pool;
  taken_ -= bytes;
}

// Requests as many pieces of `left` as one call takes.
CopiedMemory::Request CopiedMemory::next_request(std::span<const Piece> pieces, std::vector<Unasked>& left,
                                                 CopyCall& call, RequestLimits limits) {
  Unasked& of = left.back();
  Request request{of.first, &call};
  call.clear();
  std::size_t bytes = 0;
  for (; of.first < of.end && call.local.size() < limits.pieces; ++of.first) {
    const Piece& p = pieces[of.first];
    if (of.first > request.first && bytes + p.range.size() > limits.bytes) break;
    call.local.push_back({p.into, p.range.size()});
    call.remote.push_back({reinterpret_cast<void*>(p.range.start), p.range.size()});
    bytes += p.range.size();
  }
  if (of.first == of.end) left.pop_back();
  return request;
}

// process_vm_readv() stops at the first piece that faults, and copies everything before it in full (a piece may be cut
// at a page boundary). The rest is requested again, without that piece.
void CopiedMemory::note_copied(const Request& request, std::vector<Unasked>& left, std::vector<std::size_t>& copied) {
  std::size_t bytes = request.call->copied < 0 ? 0 : static_cast<std::size_t>(request.call->copied);
  const std::vector<iovec>& asked = request.call->local;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    copied[request.first + i] = std::min(bytes, asked[i].iov_len);
    if (bytes >= asked[i].iov_len) {
      bytes -= asked[i].iov_len;
      continue;
    }
    if (i + 1 < asked.size()) left.push_back({request.first + i + 1, request.first + asked.size()});
    return;
  }
}

std::vector<std::size_t> CopiedMemory::read_pieces(std::span<const Piece> pieces) {
  std::vector<std::size_t> copied(pieces.size(), 0);
  if (pieces.empty()) return copied;
  const auto second = pieces.size() >= kWorthTwo ? second_ : nullptr;
  std::vector<Unasked> left{{0, pieces.size()}};
  std::vector<Request> requests;
  CopyCall own;
  while (fetches_ && !left.empty()) {
    requests.clear();
    if (!second) requests.push_back(next_request(pieces, left, own, {kMaxBatch, kMaxOfCall}));
    std::size_t bytes = 0;
    for (std::size_t i = 0; second && i < second->calls.size() && !left.empty() && bytes < kMaxOfCall; ++i) {
      requests.push_back(next_request(pieces, left, second->calls[i], {kShare, kMaxOfCall / 4}));
      for (const iovec& piece : second->calls[i].local) bytes += piece.iov_len;
    }
    const auto make = [&, tid = tid_, count = requests.size()] {
      if (second) second->make(tid, count);
      else own.make(tid);
    };
    if (reader_ != nullptr) reader_->blocking(make);
    else make();
    if (!fetches_) break;  // ended meanwhile: the process may run again, and what was read is not consistent
    for (const Request& request : requests) note_copied(request, left, copied);
  }
  return copied;
}

namespace {

// If one stack overlaps the next, the next one gets the overlap: each region keeps its innermost end as its start.
std::vector<Range> without_overlaps(std::span<const Range> stacks) {
  std::vector<Range> all;
  for (const Range& r : stacks)
    if (r.start < r.end) all.push_back(r);
  std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.start < b.start; });
  std::vector<Range> apart;
  for (const Range& r : all) {
    if (apart.empty() || apart.back().end <= r.start) {
      apart.push_back(r);
      continue;
    }
    const Address end = std::max(apart.back().end, r.end);
    if (apart.back().start == r.start) apart.pop_back();
    else apart.back().end = r.start;
    apart.push_back({r.start, end});
  }
  return apart;
}

}  // namespace

// The parts of the stacks that no earlier call has copied: regions must not overlap.
std::vector<CopiedMemory::Rest> CopiedMemory::not_copied_of(std::span<const Range> apart) const {
  std::vector<Rest> rests;
  const auto add = [&](Address start, Address end) {
    if (start < end) rests.push_back({{start, end}, start});
  };
  for (const Range& r : apart) {
    Address at = r.start;
    auto there = std::upper_bound(regions_.begin(), regions_.end(), at,
                                  [](Address a, const Region& x) { return a < x.range.end; });
    for (; there != regions_.end() && there->range.start < r.end; ++there) {
      add(at, there->range.start);
      at = std::max(at, there->range.end);
    }
    add(at, r.end);
  }
  return rests;
}

// Cuts the ranges to the bytes that the limits allow: the same number of pages of each range. If there are fewer pages
// than ranges, the first ranges get one page each.
void CopiedMemory::share_among(std::vector<Range>& ranges, std::size_t allowed) {
  const std::size_t each = std::max(kPage, (allowed / ranges.size()) & ~(kPage - 1));
  std::size_t left = allowed;
  for (Range& r : ranges) {
    const std::size_t of_this = std::min({r.size(), each, left});
    r.end = r.start + of_this;
    left -= of_this;
  }
  give_back(left);
}

void CopiedMemory::copy_stacks(std::span<const Range> stacks, std::size_t spared) {
  if (tid_ == 0 || holds_) return;
  spared = allow(std::min(spared, limits_.own / 2));
  std::vector<Rest> rests = not_copied_of(without_overlaps(stacks));
  const std::size_t known = regions_.size();
  bool exhausted = false;
  while (!rests.empty() && !exhausted && fetches_) {
    std::vector<Range> turn;
    std::size_t wanted = 0;
    for (const Rest& r : rests) {
      turn.push_back({r.at, end_of_turn(r.stack, r.at, turn_after(r.at - r.stack.start))});
      wanted += turn.back().size();
    }
    if (const std::size_t allowed = allow(wanted); allowed < wanted) {
      exhausted = true;
      share_among(turn, allowed);
    }
    std::vector<Piece> pieces;
    for (const Range& r : turn) pieces.push_back({r, r.size() == 0 ? nullptr : arena_.take(r.size())});
    const std::vector<std::size_t> copied = read_pieces(pieces);
    std::vector<Rest> more;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (copied[i] > 0) regions_.push_back({{turn[i].start, turn[i].start + copied[i]}, pieces[i].into});
      const bool is_readable = copied[i] == turn[i].size() || !fetches_;
      const Address end = turn[i].start + copied[i];
      if (is_readable && end < rests[i].stack.end) more.push_back({rests[i].stack, end});
    }
    rests = std::move(more);
  }
  for (const Rest& r : rests) stacks_left_out_ += r.stack.end - r.at;
  give_back(spared);
  if (regions_.size() == known) return;
  std::sort(regions_.begin(), regions_.end(),
            [](const Region& a, const Region& b) { return a.range.start < b.range.start; });
}

void CopiedMemory::fetch_pages(std::span<const Range> ranges) {
  fetch(ranges);
  for (const Range& r : ranges)
    for (Address page = r.start & ~(kPage - 1); page < std::min(r.end, kLastPage); page += kPage) {
      const auto copy = pages_.find(page);
      if (copy == pages_.end()) break;  // so a range without end is not walked
      copy->second.wanted.add(r.start > page ? r.start - page : 0, std::min(kPage, r.end - page));
      if (!for_once_) read_at_all_times(page);
    }
}

void CopiedMemory::fetch(std::span<const Range> ranges) {
  if (tid_ == 0 || !fetches_ || holds_) return;
  std::vector<Address> wanted;
  for (const Range& r : ranges) {
    // Pointers in a target's memory can have any value: a range may end at the end of the address space.
    const Address end = std::min(r.end, kLastPage);
    for (Address page = r.start & ~(kPage - 1); page < end && wanted.size() < CopyLimits::kMax / kPage; page += kPage) {
      const Address from = std::max(page, r.start), to = std::min(page + kPage, r.end);
      if (const auto copy = pages_.find(page); copy != pages_.end() && copy->second.is_old && !for_once_)
        pages_.erase(copy);
      if (!missing_.contains(page) && at(from).size() < to - from) wanted.push_back(page);
    }
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  if (const std::size_t allowed = allow(wanted.size() * kPage) / kPage; allowed < wanted.size()) {
    wanted.resize(allowed);
    pages_left_out_ = true;
  }
  std::vector<Piece> pieces;
  pieces.reserve(wanted.size());
  for (const Address page : wanted) {
    const auto part = pages_.find(page);
    pieces.push_back({{page, page + kPage}, part != pages_.end() ? part->second.bytes : arena_.take(kPage)});
  }
  const std::vector<std::size_t> copied = read_pieces(pieces);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (copied[i] < kPage) {
      pages_.erase(wanted[i]);
      if (fetches_) missing_.emplace(wanted[i], pieces[i].into);  // otherwise it was only not read in time
      continue;
    }
    const auto [at, is_new] = pages_.try_emplace(wanted[i], Page{pieces[i].into});
    at->second.copied = {0, kPage};
    if (is_new) at->second.for_once = for_once_;
    has_for_once_ = has_for_once_ || for_once_;
  }
}

std::span<const std::byte> CopiedMemory::at(Address address) const {
  if (const auto page = pages_.find(address & ~(kPage - 1)); page != pages_.end()) {
    const std::size_t skip = address & (kPage - 1);
    const Part& part = page->second.copied;
    if (skip >= part.from && skip < part.to) return {page->second.bytes + skip, part.to - skip};
  }
  auto it = std::upper_bound(regions_.begin(), regions_.end(), address,
                             [](Address a, const Region& r) { return a < r.range.start; });
  if (it == regions_.begin()) return {};
  --it;
  if (!it->range.contains(address)) return {};
  const std::size_t skip = address - it->range.start;
  return {it->bytes + skip, it->range.size() - skip};
}

// From now on refresh() copies this page, which is copied now if it is of an earlier moment than the rest. False: it
// is, and nothing is copied now.
bool CopiedMemory::read_at_all_times(Address page) {
  const auto copy = pages_.find(page);
  if (copy == pages_.end() || !copy->second.for_once || !fetches_) return true;
  if (holds_) {
    copy->second.is_missed = missed_ = true;
    return false;
  }
  if (copy->second.is_old) pages_.erase(copy);
  else copy->second.for_once = false;
  return true;
}

std::size_t CopiedMemory::read(Address address, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const Address a = address + done;
    if (a < address) break;  // wrapped around
    const Address page = a & ~(kPage - 1);
    if (has_for_once_ && !for_once_ && !read_at_all_times(page)) break;
    std::span<const std::byte> bytes = at(a);
    if (bytes.empty()) {
      if (missing_.contains(page)) break;
      if (holds_) missed_ = true;
      if (tid_ == 0 || !fetches_ || holds_) break;
      const Range ahead{page, page + kPage * std::max(kReadAhead, (into.size() - done) / kPage + 2)};
      fetch(std::span(&ahead, 1));
      bytes = at(a);
      if (bytes.empty()) break;
    }
    const std::size_t n = std::min(bytes.size(), into.size() - done);
    std::memcpy(into.data() + done, bytes.data(), n);
    if (fetches_)
      if (const auto copy = pages_.find(page); copy != pages_.end()) copy->second.wanted.add(a - page, a - page + n);
    done += n;
  }
  return done;
}

void CopiedMemory::peek(std::span<const Address> addresses, std::size_t size, std::span<std::byte> into) {
  if (tid_ == 0 || !fetches_) return;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < addresses.size(); ++i)
    pieces.push_back({{addresses[i], addresses[i] + size}, into.data() + i * size});
  read_pieces(pieces);
}

void CopiedMemory::copy_from_file(std::span<const std::byte> bytes, std::byte* into) const {
  if (reader_ == nullptr) {
    std::memcpy(into, bytes.data(), bytes.size());
    return;
  }
  // Copies into memory that this call owns: `into` belongs to others once the reader was abandoned.
  std::vector<std::byte> own(bytes.size());
  reader_->blocking([&] { std::memcpy(own.data(), bytes.data(), own.size()); });
  std::memcpy(into, own.data(), own.size());
}

}  // namespace rankstacks::target
