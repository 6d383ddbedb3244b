#include "target/packed_core.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/memory_limit.h"
#include "base/regular_file.h"
#include "elf/bytes.h"
#include "target/core_notes.h"
#include "target/page_runs.h"

namespace rankstacks::target {
namespace {

// Data of libraries, arenas of an allocator, stacks: all of it is kept.
constexpr std::uint64_t kLargeSegment = 4u << 20;
// Of a stack in a large segment, from the red zone of its innermost frame on: frames with large arrays have pages
// without pointers.
constexpr std::uint64_t kRedZone = 128, kStack = 1u << 20;
// What is brought in around a page that is read, on both sides: for the first time; each further time four times more,
// as little can be said of a core of which so much is read.
constexpr std::uint64_t kAround = 8u << 20;
// How often all of the core may be unpacked again, in all.
constexpr std::int64_t kFurtherPasses = 4;
constexpr std::uint64_t kMaxNotes = 64u << 20;   // that are looked at for stack pointers
constexpr std::uint64_t kMemoryStep = 1u << 20;  // by which memory is taken
constexpr std::uint64_t kMaxHeaders = std::uint64_t{1} << 21;

std::uint64_t page_of(std::uint64_t offset) { return offset / kFilePage * kFilePage; }

// The addresses of a process's segments, as few ranges: those that are close to each other count as one.
class Addresses {
 public:
  void add(std::uint64_t start, std::uint64_t end) { ranges_.push_back({start, end}); }
  void join() {
    constexpr std::uint64_t kClose = std::uint64_t{1} << 30;
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.start < b.start; });
    std::vector<Range> joined;
    for (const Range& range : ranges_) {
      if (!joined.empty() && range.start - std::min(range.start, joined.back().end) <= kClose)
        joined.back().end = std::max(joined.back().end, range.end);
      else joined.push_back(range);
    }
    ranges_ = std::move(joined);
  }
  bool are_in(std::span<const char> page) const {
    std::uint64_t word;
    for (std::size_t at = 0; at + sizeof word <= page.size(); at += sizeof word) {
      std::memcpy(&word, page.data() + at, sizeof word);
      if (word >> 47 != 0)
        continue;  // an address of the kernel's half, a number with a sign, most floating-point numbers
      for (const Range& range : ranges_)
        if (word - range.start < range.end - range.start) return true;
    }
    return false;
  }

 private:
  std::vector<Range> ranges_;
};

}  // namespace

// Unpacks the core for the first time, and decides what is left out.
class PackedCore::FirstPass {
 public:
  FirstPass(PackedCore& core, FileDescriptor file) : core_(core), file_(std::move(file)) {}

  std::optional<Error> run(PackedStream& stream, const std::vector<PackedFrame>& known, FirstBytesCheck refuse,
                           const Deadline& deadline) {
    std::size_t frame = 0;
    for (;;) {
      // A frame at a time, if it is known where they are.
      std::size_t most = PackedStream::kPiece;
      if (!known.empty()) {
        while (frame + 2 < known.size() && stream.offset() >= known[frame + 1].unpacked) ++frame;
        const PackedFrame& end = known[frame + 1];
        if (stream.offset() == known[frame].unpacked && skip(known[frame].unpacked, end.unpacked)) {
          stream.go_to(end);
          size_ = end.unpacked;
          if (frame + 2 == known.size()) break;
          continue;
        }
        if (end.unpacked > stream.offset()) most = std::min<std::uint64_t>(most, end.unpacked - stream.offset());
      }
      const std::uint64_t offset = stream.offset();
      const auto piece = stream.next(deadline, most);
      if (piece.empty()) break;
      if (offset == 0)
        if (auto refused = refuse({piece.data(), std::min(piece.size(), PackedStream::kFirstBytes)}, core_.path_))
          return refused;
      if (auto failed = add(piece, offset)) return failed;
      size_ = offset + piece.size();
      if (!has_layout_) read_layout();
    }
    if (size_ == 0)
      if (const auto& damage = stream.damage()) return damage;
    if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) return failed_to("set the size of", errno);
    return std::nullopt;
  }

  FileDescriptor take() { return std::move(file_); }
  std::uint64_t size() const { return size_; }

 private:
  struct Large {
    FileRange range;
    std::uint64_t address = 0;
  };

  Error failed_to(const char* what, int os_errno) const {
    return {.code = ErrorCode::kUnreadable,
            .subject = core_.path_,
            .what = fmt::format("cannot {} the memory that it is unpacked to", what),
            .os_errno = os_errno,
            .hint = "unpack it yourself"};
  }

  // Whether the frame is left out without a look at it.
  bool skip(std::uint64_t start, std::uint64_t end) {
    const Large* large = large_at(start);
    if (large == nullptr || end <= start || end > large->range.end) return false;
    read_stacks();
    if (is_stack(start, end)) return false;
    leave_out({start, end});
    return true;
  }

  std::optional<Error> add(std::span<const char> piece, std::uint64_t offset) {
    std::optional<Error> failed;
    each_kept_run(
        piece, offset,
        [&](std::span<const char> page, std::uint64_t at) {
          if (is_all_zero(page)) return false;
          if (is_needed(page, at) && core_.take_page()) return true;
          leave_out({at, at + page.size()});
          return false;
        },
        [&](std::span<const char> run, std::uint64_t at) {
          while (!failed && !run.empty()) {
            const ssize_t n = pwrite(file_.get(), run.data(), run.size(), static_cast<off_t>(at));
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) failed = failed_to("write to", n < 0 ? errno : ENOSPC);
            else {
              run = run.subspan(static_cast<std::size_t>(n));
              at += static_cast<std::uint64_t>(n);
            }
          }
        });
    return failed;
  }

  bool is_needed(std::span<const char> page, std::uint64_t at) {
    const Large* large = large_at(at);
    if (large == nullptr || at + page.size() > large->range.end) return true;
    read_stacks();
    if (is_stack(at, at + page.size())) return true;
    // gdb's gcore does not align segments.
    const std::size_t word = (large->range.start - at) % sizeof(std::uint64_t);
    return addresses_.are_in(page.subspan(std::min(word, page.size())));
  }

  bool is_stack(std::uint64_t start, std::uint64_t end) const {
    const auto it = std::upper_bound(stacks_.begin(), stacks_.end(), start,
                                     [](std::uint64_t x, const FileRange& r) { return x < r.end; });
    return it != stacks_.end() && it->start < end;
  }

  const Large* large_at(std::uint64_t offset) const {
    auto it = std::upper_bound(large_.begin(), large_.end(), offset,
                               [](std::uint64_t x, const Large& l) { return x < l.range.start; });
    if (it == large_.begin()) return nullptr;
    --it;
    return offset < it->range.end ? &*it : nullptr;
  }

  void leave_out(FileRange range) {
    auto& all = core_.left_out_;
    if (!all.empty() && all.back().end == range.start) all.back().end = range.end;
    else all.push_back(range);
  }

  std::vector<std::byte> bytes_at(std::uint64_t offset, std::uint64_t size) const {
    std::vector<std::byte> bytes(size);
    const ssize_t n = pread(file_.get(), bytes.data(), size, static_cast<off_t>(offset));
    bytes.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    return bytes;
  }

  // The program headers, once they are there. Until then everything is kept.
  void read_layout() {
    const auto header = elf::load<Elf64_Ehdr>(bytes_at(0, sizeof(Elf64_Ehdr)), 0);
    if (!header || header->e_phentsize != sizeof(Elf64_Phdr)) return;
    std::uint64_t count = header->e_phnum;
    if (count == PN_XNUM) {  // as CoreFile::header_count
      const auto first = elf::load<Elf64_Phdr>(bytes_at(header->e_phoff, sizeof(Elf64_Phdr)), 0);
      if (!first || first->p_type != PT_NOTE || first->p_offset <= header->e_phoff) return;
      count = (first->p_offset - header->e_phoff) / sizeof(Elf64_Phdr);
    }
    count = std::min(count, kMaxHeaders);
    if (header->e_phoff > size_ || (size_ - header->e_phoff) / sizeof(Elf64_Phdr) < count) return;
    has_layout_ = true;
    const auto table = bytes_at(header->e_phoff, count * sizeof(Elf64_Phdr));
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto p = elf::load<Elf64_Phdr>(table, i * sizeof(Elf64_Phdr));
      std::uint64_t end = 0, end_in_memory = 0;
      if (!p || __builtin_add_overflow(p->p_offset, p->p_filesz, &end) ||
          __builtin_add_overflow(p->p_vaddr, p->p_memsz, &end_in_memory))
        continue;
      if (p->p_type == PT_NOTE) notes_.push_back({p->p_offset, end});
      if (p->p_type != PT_LOAD) continue;
      addresses_.add(p->p_vaddr, end_in_memory);
      if (p->p_filesz >= kLargeSegment) large_.push_back({{p->p_offset, end}, p->p_vaddr});
    }
    addresses_.join();
    std::sort(large_.begin(), large_.end(),
              [](const Large& a, const Large& b) { return a.range.start < b.range.start; });
    const auto overlap = std::adjacent_find(large_.begin(), large_.end(),
                                            [](const Large& a, const Large& b) { return a.range.end > b.range.start; });
    if (overlap != large_.end()) large_.clear();  // no core has these: all of it is kept
  }

  // The parts of large segments that are stacks, if the notes come before the memory, as in the kernel's cores.
  void read_stacks() {
    if (std::exchange(has_stacks_, true)) return;
    std::vector<std::vector<std::byte>> bytes;
    std::vector<CoreNoteSegment> segments;
    std::uint64_t left = kMaxNotes;
    for (const FileRange& range : notes_) {
      if (range.end > size_ || range.end - range.start > left) continue;
      left -= range.end - range.start;
      bytes.push_back(bytes_at(range.start, range.end - range.start));
      segments.push_back({range.start, bytes.back(), false});
    }
    std::vector<Large> by_address = large_;
    std::sort(by_address.begin(), by_address.end(),
              [](const Large& a, const Large& b) { return a.address < b.address; });
    for (const ThreadInfo& thread : parse_notes(segments).threads) {
      if (!thread.registers) continue;
      const Address sp = thread.registers->sp() - kRedZone;
      auto large = std::upper_bound(by_address.begin(), by_address.end(), sp,
                                    [](Address x, const Large& l) { return x < l.address; });
      if (large == by_address.begin()) continue;
      const FileRange& range = (--large)->range;
      if (sp - large->address >= range.end - range.start) continue;
      const std::uint64_t start = page_of(range.start + (sp - large->address));
      stacks_.push_back({start, std::min(start + kStack, range.end)});
    }
    // Those that overlap become one.
    std::sort(stacks_.begin(), stacks_.end(), [](const FileRange& a, const FileRange& b) { return a.start < b.start; });
    std::size_t kept = 0;
    for (const FileRange& stack : stacks_) {
      if (kept > 0 && stack.start <= stacks_[kept - 1].end)
        stacks_[kept - 1].end = std::max(stacks_[kept - 1].end, stack.end);
      else stacks_[kept++] = stack;
    }
    stacks_.resize(kept);
  }

  PackedCore& core_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
  bool has_layout_ = false, has_stacks_ = false;
  std::vector<Large> large_;       // by offset, without overlaps
  std::vector<FileRange> stacks_;  // in large segments; by offset, without overlaps
  std::vector<FileRange> notes_;
  Addresses addresses_;
};

Result<PackedCore::Opened> PackedCore::open(int packed, Compression compression, const std::string& path,
                                            FirstBytesCheck refuse, const Deadline& deadline) {
  std::shared_ptr<PackedCore> core(new PackedCore);
  core->path_ = path;
  core->compression_ = compression;
  struct stat status {};
  FileDescriptor file(memfd_create("rankstacks-core", MFD_CLOEXEC));
  if (!file.is_open() || fstat(packed, &status) != 0)
    return fail({.code = ErrorCode::kUnreadable,
                 .subject = path,
                 .what = "cannot make memory to unpack it to",
                 .os_errno = errno,
                 .hint = "unpack it yourself"});
  core->device_ = status.st_dev;
  core->inode_ = status.st_ino;
  core->packed_size_ = status.st_size;
  PackedStream stream(packed, compression, path);
  FirstPass pass(*core, std::move(file));
  std::vector<PackedFrame> known = seekable_frames(packed, compression);
  if (auto error = pass.run(stream, known, refuse, deadline)) return fail(std::move(*error));
  core->frames_ = known.empty() ? stream.frames() : std::move(known);
  core->time_left_ = deadline.left();
  core->work_left_ = kFurtherPasses * static_cast<std::int64_t>(pass.size());
  core->short_of_memory_ = false;  // that matters only if what was left out for it is read
  Opened opened{pass.take(), stream.damage(), nullptr};
  if (core->left_out_.empty()) return opened;
  void* memory = mmap(nullptr, pass.size(), PROT_READ | PROT_WRITE, MAP_SHARED, opened.file.get(), 0);
  if (memory == MAP_FAILED)
    return fail({.code = ErrorCode::kUnreadable,
                 .subject = path,
                 .what = "cannot map the memory that it is unpacked to",
                 .os_errno = errno,
                 .hint = "unpack it yourself"});
  core->memory_ = {static_cast<char*>(memory), pass.size()};
  opened.core = std::move(core);
  return opened;
}

PackedCore::~PackedCore() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

// The first range that is left out between `offset` and `end`.
const PackedCore::FileRange* PackedCore::left_out_at(std::uint64_t offset, std::uint64_t end) const noexcept {
  const auto it = std::upper_bound(left_out_.begin(), left_out_.end(), offset,
                                   [](std::uint64_t x, const FileRange& r) { return x < r.end; });
  return it != left_out_.end() && it->start < end ? &*it : nullptr;
}

std::uint64_t PackedCore::fill(Address, std::uint64_t offset, std::uint64_t size) noexcept {
  const std::uint64_t end = offset + size;
  {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    if (left_out_at(offset, end) == nullptr) return size;
  }
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  while (const FileRange* missing = left_out_at(offset, end)) {
    const std::uint64_t at = std::max(missing->start, offset);
    if (!bring_in(at)) return at - offset;
  }
  return size;
}

bool PackedCore::take_page() noexcept {
  if (taken_ahead_ < kFilePage) {
    if (!take_memory(MemoryUse::kCopies, kMemoryStep)) {
      short_of_memory_ = true;
      return false;
    }
    taken_ahead_ += kMemoryStep;
  }
  taken_ahead_ -= kFilePage;
  return true;
}

// What is brought in with the byte at `offset`: whole frames, if they are small, else what is close.
PackedCore::FileRange PackedCore::around(std::uint64_t offset) const noexcept {
  const auto next = std::upper_bound(frames_.begin(), frames_.end(), offset,
                                     [](std::uint64_t x, const PackedFrame& f) { return x < f.unpacked; });
  const std::uint64_t far = kAround << std::min(2 * further_passes_, 30U);
  FileRange range{page_of(offset - std::min(offset, far)), page_of(offset) + far};
  range.end = std::min<std::uint64_t>(range.end, memory_.size());
  if (next != frames_.end() && next != frames_.begin() && next->unpacked - (next - 1)->unpacked <= 2 * kAround)
    range = {(next - 1)->unpacked, next->unpacked};
  return range;
}

FileDescriptor PackedCore::open_again() const noexcept {
  auto file = open_regular_file(path_);
  struct stat status {};
  if (!file || fstat(file->descriptor.get(), &status) != 0 || status.st_dev != device_ || status.st_ino != inode_ ||
      status.st_size != packed_size_)
    return FileDescriptor(-1);
  return std::move(file->descriptor);
}

// Unpacks from the last frame before `offset` on. False: it cannot be had.
bool PackedCore::bring_in(std::uint64_t offset) noexcept try {
  const FileRange wanted = around(offset);
  const auto frame = std::prev(std::upper_bound(frames_.begin(), frames_.end(), wanted.start,
                                                [](std::uint64_t x, const PackedFrame& f) { return x < f.unpacked; }));
  ++further_passes_;
  work_left_ -= static_cast<std::int64_t>(wanted.end - frame->unpacked);
  if (work_left_ < 0) {
    short_of_work_ = true;
    return false;
  }
  const FileDescriptor file = open_again();
  if (!file.is_open()) {
    damage_ = Error{.subject = path_, .what = "the file was changed or moved while it was read"};
    return false;
  }
  const auto began = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(time_left_);
  PackedStream stream(file.get(), compression_, path_);
  stream.go_to(*frame);
  while (stream.offset() < wanted.end) {
    const std::uint64_t at = stream.offset();
    const std::uint64_t end = at < wanted.start ? wanted.start : wanted.end;
    const auto piece = stream.next(deadline, std::min<std::uint64_t>(PackedStream::kPiece, end - at));
    if (piece.empty() || (at >= wanted.start && !bring_in_piece(piece, at))) break;
  }
  time_left_ -= std::min(time_left_, Deadline::Clock::now() - began);
  if (left_out_at(offset, offset + 1) == nullptr) return true;
  if (!short_of_memory_) damage_ = stream.damage();
  return false;
} catch (const std::bad_alloc&) {
  short_of_memory_ = true;
  return false;
}

// Writes those pages of the piece that are left out, and no longer counts them as such. False: there is no more memory.
bool PackedCore::bring_in_piece(std::span<const char> piece, std::uint64_t offset) {
  each_kept_run(
      piece, offset,
      [&](std::span<const char> page, std::uint64_t at) {
        return !short_of_memory_ && !is_all_zero(page) && left_out_at(at, at + page.size()) != nullptr && take_page();
      },
      [&](std::span<const char> run, std::uint64_t at) { std::memcpy(memory_.data() + at, run.data(), run.size()); });
  if (short_of_memory_) return false;
  const FileRange brought{offset, offset + piece.size()};
  std::vector<FileRange> left;
  for (const FileRange& range : left_out_) {
    if (range.start < brought.start) left.push_back({range.start, std::min(range.end, brought.start)});
    if (range.end > brought.end) left.push_back({std::max(range.start, brought.end), range.end});
  }
  left_out_ = std::move(left);
  return true;
}

std::optional<Problem> PackedCore::shortage() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  if (short_of_memory_)
    return Problem{"not all of what was read of the packed core is in memory: stacks and values may be missing",
                   "give it more with --memory, or unpack the core yourself", ProblemCode::kIncomplete};
  if (damage_) {
    Error damage = *damage_;
    damage.subject.clear();
    return Problem{"a part of the packed core could not be unpacked when it was read: " + damage.message(),
                   damage.hint.empty() ? "unpack it yourself" : damage.hint, ProblemCode::kIncomplete};
  }
  if (short_of_work_)
    return Problem{
        fmt::format("so much of the packed core is read that it would be unpacked more than {} times: stacks and "
                    "values may be missing",
                    kFurtherPasses),
        "unpack it yourself", ProblemCode::kIncomplete};
  return std::nullopt;
}

}  // namespace rankstacks::target
