#include "target/core_file.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/regular_file.h"
#include "base/text.h"
#include "elf/bytes.h"
#include "target/packed_core.h"

namespace rankstacks::target {
namespace {

// Linux allows 65,530 mappings per process unless vm.max_map_count says otherwise (1,048,576 on Fedora and Ubuntu):
// this is 30 times as many as a core has by default.
constexpr std::uint64_t kMaxProgramHeaders = std::uint64_t{1} << 21;
// For all note segments together: the notes of 100,000 threads with AVX-512 state have 300 MiB.
constexpr std::uint64_t kMaxNotes = std::uint64_t{2} << 30;

constexpr const char* kTakeAgain =
    "take it again with more room: the limit of core sizes (ulimit -c, systemd-coredump's ExternalSizeMax) or a full "
    "disk cuts cores off";

Error unusable(ErrorCode code, const std::string& subject, std::string what, std::string hint,
               std::optional<std::uint64_t> where = {}) {
  return Error{.code = code, .subject = subject, .what = std::move(what), .where = where, .hint = std::move(hint)};
}

std::string machine_name(unsigned machine) {
  switch (machine) {
    case EM_386: return "x86 (32-bit)";
    case EM_AARCH64: return "AArch64";
    case EM_PPC64: return "PowerPC64";
    case EM_RISCV: return "RISC-V";
    case EM_S390: return "S/390";
    case EM_CUDA: return "CUDA, a GPU";
    default: return fmt::format("number {}", machine);
  }
}

std::string size_text(std::uint64_t bytes) {
  if (bytes < (1 << 20)) return fmt::format("{} KiB", (bytes + 1023) >> 10);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// Why a file with these first bytes is not a core; std::nullopt if it may be one.
std::optional<Error> refuse(std::string_view first, const std::string& subject) {
  const std::string core_hint = "name a core file: of the kernel, of gcore, or one of these compressed";
  if (first.empty()) {
    return unusable(
        ErrorCode::kMalformed, subject, "the file is empty",
        "a full disk or a limit of core sizes (ulimit -c) leaves empty cores; take it again with more room");
  }
  const std::string_view magic(ELFMAG, std::min<std::size_t>(SELFMAG, first.size()));
  if (!first.starts_with(magic) || first.size() < SELFMAG) {
    return unusable(
        ErrorCode::kMalformed, subject,
        "not a core file: it begins neither as ELF, nor as .zst, .lz4, .xz or .gz, nor as a report of apport's",
        core_hint);
  }
  if (first.size() < sizeof(Elf64_Ehdr)) {
    return unusable(ErrorCode::kMalformed, subject,
                    fmt::format("the ELF header is cut off: {} of {} bytes", first.size(), sizeof(Elf64_Ehdr)),
                    kTakeAgain);
  }
  Elf64_Ehdr header;
  std::memcpy(&header, first.data(), sizeof header);
  const std::string here = "only cores of 64-bit x86-64 processes are read; use gdb on the machine it comes from";
  if (header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return unusable(
        ErrorCode::kUnsupported, subject,
        fmt::format("ELF byte order {} where 1 (little-endian) is expected", unsigned{header.e_ident[EI_DATA]}), here,
        EI_DATA);
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64) {
    return unusable(ErrorCode::kUnsupported, subject,
                    fmt::format("ELF class {} where 2 (64-bit) is expected", unsigned{header.e_ident[EI_CLASS]}), here,
                    EI_CLASS);
  }
  if (header.e_type == ET_EXEC || header.e_type == ET_DYN) {
    return unusable(ErrorCode::kMalformed, subject, "an executable or shared library, not a core",
                    "name the core file; pass the executable with --exe");
  }
  if (header.e_type != ET_CORE) {
    return unusable(ErrorCode::kMalformed, subject,
                    fmt::format("ELF type {} where 4 (core) is expected", header.e_type), core_hint,
                    offsetof(Elf64_Ehdr, e_type));
  }
  if (header.e_machine != EM_X86_64) {
    return unusable(
        ErrorCode::kUnsupported, subject,
        fmt::format("a core of another machine ({}) where x86-64 is expected", machine_name(header.e_machine)), here,
        offsetof(Elf64_Ehdr, e_machine));
  }
  return std::nullopt;
}

Result<FileDescriptor> open_regular(const std::string& path) {
  auto file = open_regular_file(path);
  if (file) return std::move(file->descriptor);
  const NotRegular& not_regular = file.error();
  if (!not_regular.kind.empty()) {
    return fail(unusable(ErrorCode::kUnreadable, path, not_regular.kind + ", not a core file",
                         not_regular.kind == "a directory"
                             ? "name the cores in it"
                             : "write it to a file first: a core is not read sequentially"));
  }
  const int why = not_regular.os_errno;
  const ErrorCode code = why == ENOENT                   ? ErrorCode::kNotFound
                         : why == EACCES || why == EPERM ? ErrorCode::kPermission
                                                         : ErrorCode::kUnreadable;
  return fail({.code = code,
               .subject = path,
               .what = "cannot open",
               .os_errno = why,
               .hint = !not_regular.hint.empty() ? not_regular.hint
                       : code == ErrorCode::kNotFound
                           ? "check the path; `coredumpctl dump` writes out a core that systemd keeps"
                       : code == ErrorCode::kPermission
                           ? "cores belong to the user of the process: read it as that user or as root"
                       : why == EMFILE || why == ENFILE ? "raise the limit of open files: ulimit -n"
                                                        : ""});
}

}  // namespace

void CoreFile::report(std::string message, std::string hint) {
  problems_.push_back(
      {std::move(message), hint.empty() ? std::nullopt : std::optional(std::move(hint)), ProblemCode::kIncomplete});
  complete_ = false;
}

Result<std::unique_ptr<CoreFile>> CoreFile::open(const std::string& path, const Deadline& deadline,
                                                 std::shared_ptr<LazyMemory> memory) {
  auto file = open_regular(path);
  if (!file) return fail(file.error());
  std::unique_ptr<CoreFile> core(new CoreFile);
  core->subject_ = path;
  core->memory_ = std::move(memory);

  std::array<char, sizeof(Elf64_Ehdr)> first{};
  const ssize_t n = pread(file->get(), first.data(), first.size(), 0);
  if (n < 0) return fail({.subject = path, .what = "cannot read", .os_errno = errno});
  const std::string_view first_bytes(first.data(), static_cast<std::size_t>(n));
  const Compression compression = compression_of(first_bytes);
  if (compression == Compression::kNone) {
    if (auto error = refuse(first_bytes, path)) return fail(*error);
    core->path_ = path;
  } else {
    auto unpacked = PackedCore::open(file->get(), compression, path, refuse, deadline);
    if (!unpacked) return fail(unpacked.error());
    if (unpacked->damage) {
      Error damage = *unpacked->damage;
      damage.subject.clear();
      core->report(damage.message(), damage.hint);
    }
    *file = std::move(unpacked->file);
    core->memory_ = std::move(unpacked->core);
  }

  struct stat status {};
  if (fstat(file->get(), &status) != 0)
    return fail({.subject = path, .what = "cannot stat the open file", .os_errno = errno});
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return fail(*refuse({}, path));  // truncated while it was being opened
  auto mapped = MappedFile::map(file->get(), size);
  if (!mapped) return fail({.subject = path, .what = "cannot map", .os_errno = errno});
  core->mapped_ = std::move(*mapped);
  core->bytes_ = core->mapped_.bytes();
  core->device_ = status.st_dev;
  core->inode_ = status.st_ino;

  const auto count = core->header_count();
  if (!count) return fail(count.error());
  if (auto error = core->index_segments(*count)) return fail(*error);
  return core;
}

// The number of program headers to read: as many as the file states and contains.
Result<std::uint64_t> CoreFile::header_count() {
  const auto header = elf::load<Elf64_Ehdr>(bytes_, 0);
  if (!header) return fail(unusable(ErrorCode::kMalformed, subject_, "the ELF header is cut off", kTakeAgain));
  const std::string damaged = "the core is damaged; take or copy it again";
  if (header->e_phnum == 0) {
    return fail(unusable(ErrorCode::kMalformed, subject_, "no program headers: it holds neither threads nor memory",
                         damaged, offsetof(Elf64_Ehdr, e_phnum)));
  }
  if (header->e_phentsize != sizeof(Elf64_Phdr)) {
    return fail(unusable(
        ErrorCode::kMalformed, subject_,
        fmt::format("program headers of {} bytes where {} are expected", header->e_phentsize, sizeof(Elf64_Phdr)),
        damaged, offsetof(Elf64_Ehdr, e_phentsize)));
  }
  const auto first = elf::load<Elf64_Phdr>(bytes_, header->e_phoff);
  if (!first) {
    return fail(unusable(ErrorCode::kMalformed, subject_,
                         fmt::format("the program headers lie outside the file of {} bytes", bytes_.size()), kTakeAgain,
                         header->e_phoff));
  }
  std::uint64_t count = header->e_phnum;
  if (count == PN_XNUM) {
    // With more than 65,534 mappings section 0 has the number (ELF gABI, "Program Header"). The kernel writes that
    // section at the very end, and the notes right behind the program headers: so a core that is cut off still shows
    // how many there were.
    const auto section = elf::load<Elf64_Shdr>(bytes_, header->e_shoff);
    const std::uint64_t table_end = first->p_offset - header->e_phoff;
    if (header->e_shoff != 0 && section) {
      count = section->sh_info;
    } else if (first->p_type == PT_NOTE && first->p_offset > header->e_phoff && table_end % sizeof(Elf64_Phdr) == 0 &&
               table_end / sizeof(Elf64_Phdr) >= PN_XNUM) {
      count = table_end / sizeof(Elf64_Phdr);
    } else {
      report("the number of program headers is missing: more than 65534, and section 0 is not in the file", kTakeAgain);
    }
  }
  const std::uint64_t held = (bytes_.size() - header->e_phoff) / sizeof(Elf64_Phdr);
  if (count > held) {
    report(fmt::format("{} of {} program headers are missing: the core ends at byte {}", count - held, count,
                       bytes_.size()),
           kTakeAgain);
    count = held;
  }
  if (count > kMaxProgramHeaders) {
    report(fmt::format("{} of {} program headers left out: of that many the first {} are read",
                       count - kMaxProgramHeaders, count, kMaxProgramHeaders),
           "the core is damaged; take or copy it again");
    count = kMaxProgramHeaders;
  }
  return count;
}

void CoreFile::add_notes(std::uint64_t offset, std::uint64_t size, Losses& losses) {
  const auto there = elf::clip(bytes_, offset, size);
  // Many segments may refer to the same bytes.
  const auto read = elf::clip(there, 0, std::min(kMaxNotes, static_cast<std::uint64_t>(bytes_.size())) - losses.notes);
  losses.notes += read.size();
  losses.left_out_notes += there.size() - read.size();
  if (read.size() < there.size()) {
    if (!read.empty()) notes_.push_back({offset, read, true});
    return;
  }
  notes_.push_back({offset, there, there.size() < size});
  losses.notes_cut = losses.notes_cut || there.size() < size;
}

std::optional<Error> CoreFile::index_segments(std::uint64_t count) {
  const std::uint64_t table = elf::load<Elf64_Ehdr>(bytes_, 0)->e_phoff;
  Losses losses;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = table + i * sizeof(Elf64_Phdr);
    const auto p = *elf::load<Elf64_Phdr>(bytes_, at);
    if (p.p_type != PT_LOAD && p.p_type != PT_NOTE) continue;
    std::uint64_t end_in_file = 0, end_in_memory = 0;
    if (__builtin_add_overflow(p.p_offset, p.p_filesz, &end_in_file) ||
        (p.p_type == PT_LOAD && __builtin_add_overflow(p.p_vaddr, p.p_memsz, &end_in_memory))) {
      if (losses.absurd++ == 0) losses.first_absurd = at;
      continue;
    }
    losses.expected = std::max(losses.expected, p.p_filesz > 0 ? end_in_file : 0);
    if (p.p_type == PT_NOTE) {
      add_notes(p.p_offset, p.p_filesz, losses);
      continue;
    }
    ++losses.segments;
    const auto there = elf::clip(bytes_, p.p_offset, p.p_filesz);
    if (there.size() < p.p_filesz) {
      losses.memory += p.p_filesz - there.size();
      ++losses.cut_segments;
    }
    if (p.p_memsz > 0) add_segment({{p.p_vaddr, end_in_memory}, elf::clip(there, 0, p.p_memsz), p.p_flags});
  }
  report_losses(losses);
  if (segments_.empty() && notes_.empty()) {
    return unusable(ErrorCode::kMalformed, subject_, "no usable program header: it holds neither threads nor memory",
                    "the core is damaged; take or copy it again", table);
  }
  drop_overlaps();
  return std::nullopt;
}

void CoreFile::report_losses(const Losses& losses) {
  if (losses.absurd > 0)
    report(fmt::format("{} program header{} left out: offset or address and size overflow (the first at {:#x})",
                       losses.absurd, plural(losses.absurd), losses.first_absurd),
           "the core is damaged; take or copy it again");
  if (losses.left_out_notes > 0)
    report(fmt::format("{} of notes left out: more than the core can hold, or than {} GiB",
                       size_text(losses.left_out_notes), kMaxNotes >> 30),
           "the core is damaged; take or copy it again");
  if (losses.expected <= bytes_.size()) return;
  std::string lost;
  if (losses.cut_segments > 0)
    lost = fmt::format("{} of memory in {} of {} segments", size_text(losses.memory), losses.cut_segments,
                       losses.segments);
  if (losses.notes_cut)
    lost += fmt::format("{}the notes, which hold the threads' registers", lost.empty() ? "" : ", and ");
  report(
      fmt::format("the core is cut off: it ends at byte {} of {}; missing: {}", bytes_.size(), losses.expected, lost),
      kTakeAgain);
}

void CoreFile::drop_overlaps() {
  std::stable_sort(segments_.begin(), segments_.end(),
                   [](const CoreSegment& a, const CoreSegment& b) { return a.range.start < b.range.start; });
  std::size_t kept = 0, dropped = 0;
  Address first_dropped = 0;
  for (const CoreSegment& segment : segments_) {
    if (kept > 0 && segment.range.start < segments_[kept - 1].range.end) {
      if (dropped++ == 0) first_dropped = segment.range.start;
    } else {
      segments_[kept++] = segment;
    }
  }
  segments_.resize(kept);
  if (dropped > 0) {
    report(fmt::format("{} segment{} left out: memory that another one holds too (the first at {:#x})", dropped,
                       plural(dropped), first_dropped),
           "the core is damaged; take or copy it again");
  }
}

// Asks by path, because keeping a descriptor for each core would exceed the limit on open files (ulimit -n). The inode
// stays while the file is mapped, so no other file can have its number. If the path leads elsewhere by now, the loss is
// known only from the pages found to be lost, that is, in whole pages. The same is true for an unpacked core, but
// nobody else can reach its file.
std::uint64_t CoreFile::held_now() const noexcept {
  struct stat status {};
  const std::uint64_t held = mapped_.first_lost();
  if (path_.empty() || stat(path_.c_str(), &status) != 0 || status.st_dev != device_ || status.st_ino != inode_)
    return held;
  return std::min(held, static_cast<std::uint64_t>(status.st_size));
}

const CoreSegment* CoreFile::find(Address a) const {
  auto it = std::upper_bound(segments_.begin(), segments_.end(), a,
                             [](Address x, const CoreSegment& s) { return x < s.range.start; });
  if (it == segments_.begin()) return nullptr;
  --it;
  return it->range.contains(a) ? &*it : nullptr;
}

Address CoreFile::next_segment(Address a) const {
  const auto it = std::upper_bound(segments_.begin(), segments_.end(), a,
                                   [](Address x, const CoreSegment& s) { return x < s.range.start; });
  return it == segments_.end() ? ~Address{0} : it->range.start;
}

bool CoreFile::has_notes_last() const {
  std::uint64_t end_of_memory = 0;
  for (const CoreSegment& s : segments_) {
    if (!s.bytes.empty())
      end_of_memory = std::max<std::uint64_t>(
          end_of_memory, static_cast<std::uint64_t>(s.bytes.data() - bytes_.data()) + s.bytes.size());
  }
  return !notes_.empty() &&
         std::all_of(notes_.begin(), notes_.end(), [&](const CoreNoteSegment& n) { return n.offset >= end_of_memory; });
}

std::uint64_t CoreFile::drop_from(Address from) {
  auto it = std::upper_bound(segments_.begin(), segments_.end(), from,
                             [](Address x, const CoreSegment& s) { return x < s.range.start; });
  if (it == segments_.begin()) return 0;
  --it;
  const std::uint64_t at = from - it->range.start;
  if (at >= it->bytes.size()) return 0;
  const std::uint64_t dropped = it->bytes.size() - at;
  it->bytes = it->bytes.first(at);
  return dropped;
}

std::span<const std::byte> CoreFile::bytes_at(Address a, std::uint64_t most) const noexcept {
  const CoreSegment* segment = find(a);
  if (segment == nullptr || a - segment->range.start >= segment->bytes.size()) return {};
  const auto there = segment->bytes.subspan(a - segment->range.start);
  if (!memory_) return there.first(std::min<std::uint64_t>(there.size(), most));
  const auto offset = static_cast<std::uint64_t>(there.data() - bytes_.data());
  return there.first(memory_->fill(a, offset, std::min<std::uint64_t>(there.size(), most)));
}

std::size_t CoreFile::read(Address address, std::span<std::byte> into) const noexcept {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto there = bytes_at(address + done, into.size() - done);
    if (there.empty()) break;
    std::size_t n = std::min(there.size(), into.size() - done);
    std::memcpy(into.data() + done, there.data(), n);
    if (mapped_.has_lost_pages()) {
      // Zeros may have been copied: only what the file still contains counts.
      const auto offset = static_cast<std::uint64_t>(there.data() - bytes_.data());
      const std::uint64_t held = held_now();
      n = offset < held ? std::min<std::uint64_t>(n, held - offset) : 0;
      if (n == 0) break;
    }
    done += n;
  }
  return done;
}

}  // namespace rankstacks::target
