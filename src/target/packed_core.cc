#include "target/packed_core.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
#include "target/sparse_file.h"

namespace rankstacks::target {
namespace {

// Data of libraries, arenas of an allocator, stacks: all of it is kept.
constexpr std::uint64_t kLargeSegment = 4u << 20;
// Of a stack in a large segment, from the red zone of its innermost frame on: frames with large arrays have pages
// without pointers.
constexpr std::uint64_t kRedZone = 128, kStack = 1u << 20;
// Of every large segment: what a module begins with.
constexpr std::uint64_t kBeginning = 64u << 10;
// What is brought in around a page that is read, on both sides: for the first time; each further time four times more,
// as little can be said of a core of which so much is read. And if there is no memory for that.
constexpr std::uint64_t kAround = 8u << 20, kLeastAround = 64u << 10;
// How often all of the core may be unpacked again, in all.
constexpr std::int64_t kFurtherPasses = 4;
constexpr Deadline::Clock::duration kLeastPass = std::chrono::milliseconds(500);
constexpr std::uint64_t kMaxNotes = 64u << 20;   // that are looked at for stack pointers
constexpr std::uint64_t kMemoryStep = 1u << 20;  // by which memory is taken
constexpr std::uint64_t kMaxHeaders = std::uint64_t{1} << 21;
constexpr std::size_t kMaxLeftOut = 1 << 20;  // ranges

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
  // A process has two or three. Of more no page is looked at.
  bool are_few() const { return ranges_.size() <= 16; }
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

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// Takes room for pages of a mapped file, where there is none yet: a write without it would end in SIGBUS.
bool can_be_written(std::span<char> mapped, std::uint64_t at, std::uint64_t size) {
#ifdef MADV_POPULATE_WRITE
  const std::uint64_t first = page_of(at);
  return madvise(mapped.data() + first, at + size - first, MADV_POPULATE_WRITE) == 0 ||
         errno == EINVAL;  // before Linux 5.14
#else
  (void)mapped, (void)at, (void)size;
  return true;
#endif
}

}  // namespace

// Unpacks the core for the first time, and decides what is left out.
class PackedCore::FirstPass {
 public:
  FirstPass(PackedCore& core, FileDescriptor memory) : core_(core), memory_(std::move(memory)) {}

  // Errors: refused.
  std::optional<Error> run(PackedStream& stream, const std::vector<PackedFrame>& known, FirstBytesCheck refuse,
                           const Deadline& deadline) {
    std::size_t frame = 0;
    while (!failed_) {
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
      // What lies before the first large segment is there before that is looked at.
      if (!has_stacks_ && !large_.empty() && large_.front().range.start > stream.offset())
        most = std::min<std::uint64_t>(most, large_.front().range.start - stream.offset());
      const auto piece = stream.next(deadline, most);
      if (piece.empty()) break;
      if (size_ == 0)
        if (auto refused = refuse({piece.data(), std::min(piece.size(), PackedStream::kFirstBytes)}, core_.path_))
          return refused;
      add(piece, stream.offset() - piece.size());
      if (!failed_) size_ = stream.offset();
      if (!has_layout_) read_layout();
    }
    if (!failed_) failed_ = stream.damage();
    return std::nullopt;
  }

  std::optional<Error> set_size() {
    if (disk_) return disk_->set_size(size_);
    if (ftruncate(memory_.get(), static_cast<off_t>(size_)) == 0) return std::nullopt;
    return failed_to("set the size of", errno);
  }

  FileDescriptor take() { return disk_ ? disk_->take() : std::move(memory_); }
  std::uint64_t size() const { return size_; }
  // Why it ends before the end.
  const std::optional<Error>& damage() const { return failed_; }

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

  // Whether the frame is left out without a look at it. Not before it is known where the stacks are.
  bool skip(std::uint64_t start, std::uint64_t end) {
    const Large* large = large_at(start);
    if (large == nullptr || end <= start || end > large->range.end || start < large->range.start + kBeginning)
      return false;
    read_stacks();
    if (notes_come_last_ || is_stack(start, end)) return false;
    core_.leave_out({start, end});
    return true;
  }

  void add(std::span<const char> piece, std::uint64_t offset) {
    each_kept_run(
        piece, offset,
        [&](std::span<const char> page, std::uint64_t at) {
          if (is_all_zero(page)) return false;
          if (is_needed(page, at)) return true;
          core_.leave_out({at, at + page.size()});
          return false;
        },
        [&](std::span<const char> run, std::uint64_t at) {
          if (!failed_) failed_ = write(run, at);
        });
  }

  std::optional<Error> write(std::span<const char> run, std::uint64_t at) {
    if (!disk_ && !take_memory_for(run.size()))
      if (auto failed = move_to_disk()) return failed;
    if (disk_) return disk_->write(run, at);
    while (!run.empty()) {
      const ssize_t n = pwrite(memory_.get(), run.data(), run.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return failed_to("write to", n < 0 ? errno : ENOSPC);
      run = run.subspan(static_cast<std::size_t>(n));
      at += static_cast<std::uint64_t>(n);
    }
    return std::nullopt;
  }

  bool take_memory_for(std::uint64_t size) {
    while (ahead_ < size) {
      if (!take_memory(MemoryUse::kCopies, kMemoryStep)) return false;
      core_.taken_ += kMemoryStep;
      ahead_ += kMemoryStep;
    }
    ahead_ -= size;
    return true;
  }

  // What is in memory up to now is written to a file, and its memory given back.
  std::optional<Error> move_to_disk() {
    auto file = SparseFile::create(core_.path_);
    if (!file) return file.error();
    std::vector<char> buffer(PackedStream::kPiece);
    off_t hole = 0;
    for (off_t at = 0; (at = lseek(memory_.get(), hole, SEEK_DATA)) >= 0;) {
      hole = lseek(memory_.get(), at, SEEK_HOLE);
      while (at < hole) {
        const auto n = pread(memory_.get(), buffer.data(), std::min<std::size_t>(buffer.size(), hole - at), at);
        if (n <= 0) return failed_to("read", n < 0 ? errno : EIO);
        if (auto failed = file->write({buffer.data(), static_cast<std::size_t>(n)}, static_cast<std::uint64_t>(at)))
          return failed;
        at += n;
      }
    }
    disk_ = std::move(*file);
    memory_.close();
    give_back_memory(MemoryUse::kCopies, std::exchange(core_.taken_, 0));
    core_.on_disk_ = true;
    return std::nullopt;
  }

  bool is_needed(std::span<const char> page, std::uint64_t at) {
    const Large* large = large_at(at);
    if (large == nullptr || at + page.size() > large->range.end || at < large->range.start + kBeginning) return true;
    read_stacks();
    if (!addresses_.are_few() || is_stack(at, at + page.size())) return true;
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

  std::vector<std::byte> bytes_at(std::uint64_t offset, std::uint64_t size) const {
    std::vector<std::byte> bytes(size);
    const ssize_t n =
        pread(disk_ ? disk_->descriptor() : memory_.get(), bytes.data(), size, static_cast<off_t>(offset));
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
      notes_come_last_ = notes_come_last_ || range.end > size_;
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
  FileDescriptor memory_;
  std::optional<SparseFile> disk_;  // in place of the memory
  std::uint64_t ahead_ = 0;         // bytes of the share of memory that are taken and not used
  std::uint64_t size_ = 0;          // of what has been unpacked
  std::optional<Error> failed_;
  bool has_layout_ = false, has_stacks_ = false, notes_come_last_ = false;
  std::vector<Large> large_;       // by offset, without overlaps
  std::vector<FileRange> stacks_;  // in large segments; by offset, without overlaps
  std::vector<FileRange> notes_;
  Addresses addresses_;
};

Result<PackedCore::Opened> PackedCore::open(int packed, Compression compression, const std::string& path,
                                            FirstBytesCheck refuse, const Deadline& deadline) {
  const auto cannot = [&](const char* what) {
    return fail(Error{.code = ErrorCode::kUnreadable,
                      .subject = path,
                      .what = fmt::format("cannot {} memory to unpack it to", what),
                      .os_errno = errno,
                      .hint = "unpack it yourself"});
  };
  const auto began = Deadline::Clock::now();
  std::shared_ptr<PackedCore> core(new PackedCore);
  core->path_ = path;
  core->compression_ = compression;
  FileDescriptor memory(
      static_cast<int>(syscall(SYS_memfd_create, "rankstacks-core", MFD_CLOEXEC)));  // glibc 2.27 has it
  if (!memory.is_open() || fstat(packed, &core->packed_status_) != 0) return cannot("make");
  PackedStream stream(packed, compression, path);
  FirstPass pass(*core, std::move(memory));
  std::vector<PackedFrame> known = seekable_frames(packed, compression);
  if (auto refused = pass.run(stream, known, refuse, deadline)) return fail(std::move(*refused));
  if (pass.size() == 0 && pass.damage()) return fail(*pass.damage());
  if (auto failed = pass.set_size()) return fail(std::move(*failed));
  core->frames_ = known.empty() ? stream.frames() : std::move(known);
  // A further pass takes as long as the first one. All of them leave half of the time for the analysis.
  core->work_left_ = kFurtherPasses * static_cast<std::int64_t>(pass.size());
  core->time_left_ = std::min(deadline.left() / 2, kFurtherPasses * (Deadline::Clock::now() - began + kLeastPass));
  Opened opened{pass.take(), pass.damage(), core};
  if (core->left_out_.empty()) return opened;
  void* mapped = mmap(nullptr, pass.size(), PROT_READ | PROT_WRITE, MAP_SHARED, opened.file.get(), 0);
  if (mapped == MAP_FAILED) return cannot("map");
  core->memory_ = {static_cast<char*>(mapped), pass.size()};
  return opened;
}

PackedCore::~PackedCore() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
  give_back_memory(MemoryUse::kCopies, taken_);
}

// In order. If there are too many ranges, those that are kept between them count as left out as well: to bring them in
// again does no harm.
void PackedCore::leave_out(FileRange range) {
  if (!left_out_.empty() && (left_out_.back().end == range.start || left_out_.size() >= kMaxLeftOut))
    left_out_.back().end = range.end;
  else left_out_.push_back(range);
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

// What is brought in with the byte at `offset`: the whole frame, if it is small, else what is close. Takes memory for
// it.
PackedCore::FileRange PackedCore::around(std::uint64_t offset) {
  const auto near = [&](std::uint64_t far) {
    return FileRange{page_of(offset - std::min(offset, far)),
                     std::min<std::uint64_t>(page_of(offset) + far, memory_.size())};
  };
  const auto next = std::upper_bound(frames_.begin(), frames_.end(), offset,
                                     [](std::uint64_t x, const PackedFrame& f) { return x < f.unpacked; });
  FileRange range = near(kAround << std::min(2 * further_passes_, 30U));
  if (next != frames_.end() && next != frames_.begin() && next->unpacked - (next - 1)->unpacked <= 2 * kAround)
    range = {(next - 1)->unpacked, next->unpacked};
  if (on_disk_) return range;
  std::uint64_t size = 0;
  for (auto it = left_out_at(range.start, range.end); it != nullptr && it < left_out_.data() + left_out_.size(); ++it) {
    if (it->start >= range.end) break;
    size += std::min(it->end, range.end) - std::max(it->start, range.start);
  }
  if (!take_memory(MemoryUse::kCopies, size)) return near(kLeastAround);
  taken_ += size;
  return range;
}

// Nothing more is brought in.
bool PackedCore::give_up(std::string why, std::string hint) {
  shortage_ = Problem{"a part of the packed core that was read could not be unpacked: " + std::move(why),
                      std::move(hint), ProblemCode::kIncomplete};
  return false;
}

// False: it cannot be had.
bool PackedCore::bring_in(std::uint64_t offset) noexcept try {
  if (shortage_) return false;
  return unpack_again(offset, around(offset));
} catch (const std::bad_alloc&) {
  return false;
}

// Unpacks from the last frame before what is wanted on.
bool PackedCore::unpack_again(std::uint64_t offset, FileRange wanted) {
  const auto frame = std::prev(std::upper_bound(frames_.begin(), frames_.end(), wanted.start,
                                                [](std::uint64_t x, const PackedFrame& f) { return x < f.unpacked; }));
  const auto work = static_cast<std::int64_t>(wanted.end - frame->unpacked);
  if (work > work_left_)
    return give_up(fmt::format("so much of it is read that it would be unpacked more than {} times", kFurtherPasses),
                   "unpack it yourself");
  work_left_ -= work;
  ++further_passes_;
  const auto file = open_regular_file(path_);
  if (!file) {
    return give_up(std::string("the file cannot be opened again (") + std::strerror(file.error().os_errno) + ")",
                   "unpack it yourself");
  }
  struct stat now {};
  if (fstat(file->descriptor.get(), &now) != 0 || !is_same_file(now, packed_status_))
    return give_up("the file was changed while it was read", "look at it again when nothing writes to it");
  const auto began = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(time_left_);
  PackedStream stream(file->descriptor.get(), compression_, path_);
  stream.go_to(*frame);
  std::uint64_t brought = wanted.start;
  bool has_room = true;
  while (stream.offset() < wanted.end) {
    const std::uint64_t at = stream.offset();
    const std::uint64_t end = at < wanted.start ? wanted.start : wanted.end;
    const auto piece = stream.next(deadline, std::min<std::uint64_t>(PackedStream::kPiece, end - at));
    if (piece.empty()) break;
    if (at < wanted.start) continue;
    has_room = bring_in_piece(piece, at);
    if (!has_room) break;
    brought = at + piece.size();
  }
  time_left_ -= std::min(time_left_, Deadline::Clock::now() - began);
  std::vector<FileRange> left;
  for (const FileRange& range : left_out_) {
    if (range.start < wanted.start) left.push_back({range.start, std::min(range.end, wanted.start)});
    if (range.end > brought) left.push_back({std::max(range.start, brought), range.end});
  }
  left_out_ = std::move(left);
  if (left_out_at(offset, offset + 1) == nullptr) return true;
  if (!has_room) return give_up("there is no room for it", "unpack it yourself");
  if (!stream.damage()) return give_up("the file ends before it", "copy the core again, or take it again");
  Error damage = *stream.damage();
  damage.subject.clear();
  return give_up(damage.message(), damage.hint);
}

// Writes those pages of the piece that are left out. False: there is no room for them.
bool PackedCore::bring_in_piece(std::span<const char> piece, std::uint64_t offset) {
  bool has_room = true;
  each_kept_run(
      piece, offset,
      [&](std::span<const char> page, std::uint64_t at) {
        return !is_all_zero(page) && left_out_at(at, at + page.size()) != nullptr;
      },
      [&](std::span<const char> run, std::uint64_t at) {
        has_room = has_room && can_be_written(memory_, at, run.size());
        if (has_room) std::memcpy(memory_.data() + at, run.data(), run.size());
      });
  return has_room;
}

std::optional<Problem> PackedCore::shortage() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  return shortage_;
}

}  // namespace rankstacks::target
