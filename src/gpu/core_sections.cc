#include "gpu/core_sections.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "base/regular_file.h"
#include "elf/bytes.h"
#include "target/decompress.h"

namespace rankstacks::gpu::core {
namespace {

constexpr const char* kTakeAgain =
    "copy it again, or let it be written again with more room: it is written section by section, the headers at the "
    "end";
constexpr std::uint64_t kMaxSections =
    32u << 20;  // eight GPUs full of warps, with registers of each thread, have 10 million
constexpr std::size_t kMaxIndexed = 4u << 20;  // tables; those eight GPUs have 150,000

Error unusable(ErrorCode code, const std::string& subject, std::string what, std::optional<std::uint64_t> where,
               std::string hint = kTakeAgain) {
  return Error{.code = code, .subject = subject, .what = std::move(what), .where = where, .hint = std::move(hint)};
}

bool is_of_gpu(std::string_view first) {
  Elf64_Ehdr header;
  if (first.size() < sizeof header) return false;
  std::memcpy(&header, first.data(), sizeof header);
  return first.starts_with(std::string_view(ELFMAG, SELFMAG)) && header.e_machine == EM_CUDA;
}

std::optional<Error> refuse_others(std::string_view first, const std::string& subject) {
  if (is_of_gpu(first)) return std::nullopt;
  return unusable(ErrorCode::kUnsupported, subject, "not a GPU's", {});
}

std::optional<Error> refuse(const Elf64_Ehdr& header, const std::string& subject) {
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return unusable(ErrorCode::kUnsupported, subject,
                    fmt::format("a GPU's ELF file of class {} and byte order {} where 2 and 1 are expected",
                                header.e_ident[EI_CLASS], header.e_ident[EI_DATA]),
                    EI_CLASS, "only GPU cores of 64-bit little-endian hosts are read");
  }
  if (header.e_type != ET_CORE) {
    return unusable(ErrorCode::kMalformed, subject, "code of a GPU (a cubin), not a GPU core",
                    offsetof(Elf64_Ehdr, e_type),
                    "name the file that CUDA_COREDUMP_FILE names, by default core_TIME_HOST_PID.nvcudmp");
  }
  if (header.e_shoff == 0)
    return unusable(ErrorCode::kMalformed, subject, "a GPU core without section headers",
                    offsetof(Elf64_Ehdr, e_shoff));
  if (header.e_shentsize != sizeof(Elf64_Shdr)) {
    return unusable(
        ErrorCode::kMalformed, subject,
        fmt::format("section headers of {} bytes where {} are expected", header.e_shentsize, sizeof(Elf64_Shdr)),
        offsetof(Elf64_Ehdr, e_shentsize));
  }
  return std::nullopt;
}

bool is_indexed(std::uint32_t type) {
  return type == kRelocatedImage || (type >= kDevices && type <= kModules) || type == kMetaData;
}

}  // namespace

void Sections::report(std::string message, std::string hint) {
  problems_.push_back({std::move(message), hint.empty() ? std::nullopt : std::optional(std::move(hint))});
  complete_ = false;
}

std::optional<Result<std::unique_ptr<Sections>>> Sections::open(const std::string& path, const Deadline& deadline) {
  auto opened = open_regular_file(path);
  if (!opened) return std::nullopt;
  FileDescriptor file = std::move(opened->descriptor);
  std::array<char, sizeof(Elf64_Ehdr)> first{};
  const ssize_t n = pread(file.get(), first.data(), first.size(), 0);
  if (n <= 0) return std::nullopt;
  const std::string_view first_bytes(first.data(), static_cast<std::size_t>(n));
  std::unique_ptr<Sections> core(new Sections);
  core->subject_ = path;
  const target::Compression compression = target::compression_of(first_bytes);
  if (compression != target::Compression::kNone) {
    auto unpacked = target::unpack(file.get(), compression, path, refuse_others, deadline);
    if (!unpacked) return std::nullopt;
    if (unpacked->damage) {
      unpacked->damage->subject.clear();
      core->report(unpacked->damage->message(), unpacked->damage->hint);
    }
    file = std::move(unpacked->file);
  } else if (!is_of_gpu(first_bytes)) {
    return std::nullopt;
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0)
    return fail({.subject = path, .what = "cannot look at the open file", .os_errno = errno});
  if (status.st_size < static_cast<off_t>(sizeof(Elf64_Ehdr)))
    return fail(unusable(ErrorCode::kMalformed, path, "the ELF header is cut off", {}));
  auto mapped = MappedFile::map(file.get(), static_cast<std::size_t>(status.st_size));
  if (!mapped) return fail({.subject = path, .what = "cannot map", .os_errno = errno});
  core->mapped_ = std::move(*mapped);
  core->bytes_ = core->mapped_.bytes();
  if (auto error = core->index_sections()) return fail(std::move(*error));
  return core;
}

std::optional<Error> Sections::index_sections() {
  const auto header_of_file = elf::load<Elf64_Ehdr>(bytes_, 0);
  if (auto error = refuse(*header_of_file, subject_)) return error;
  const std::uint64_t at = header_of_file->e_shoff;
  const auto first = elf::load<Elf64_Shdr>(bytes_, at);
  if (!first) {
    return unusable(ErrorCode::kMalformed, subject_,
                    fmt::format("the section headers lie outside the file of {} bytes", bytes_.size()), at);
  }
  std::uint64_t count = header_of_file->e_shnum != 0 ? header_of_file->e_shnum : first->sh_size;
  const std::uint64_t held = (bytes_.size() - at) / sizeof(Elf64_Shdr);
  if (count > held) {
    report(fmt::format("{} of {} section headers are missing: the core ends at byte {}", count - held, count,
                       bytes_.size()),
           kTakeAgain);
    count = held;
  }
  if (count > kMaxSections) {
    report(fmt::format("{} sections, of which {} are looked at", count, kMaxSections), "");
    count = kMaxSections;
  }
  headers_ = bytes_.subspan(at, count * sizeof(Elf64_Shdr));
  const std::uint32_t names = header_of_file->e_shstrndx == SHN_XINDEX ? first->sh_link : header_of_file->e_shstrndx;
  std::uint64_t cut = 0;
  for (std::uint64_t i = 1; i < count; ++i) {
    const Elf64_Shdr h = header(i);
    if (h.sh_type == SHT_STRTAB && (i != names || strings_.empty()))
      strings_ = bytes_of(h);  // .strtab; the one of section names is another
    if (h.sh_type != SHT_NOBITS && h.sh_type != SHT_NULL &&
        elf::exactly(bytes_, h.sh_offset, h.sh_size).size() != h.sh_size)
      ++cut;
    if (!is_indexed(h.sh_type)) continue;
    if (entries_.size() == kMaxIndexed) {
      report(fmt::format("more than {} tables: those behind them are not read", kMaxIndexed), "");
      break;
    }
    entries_.push_back({h.sh_type, h.sh_link, h.sh_info, static_cast<std::uint32_t>(i)});
  }
  if (cut != 0)
    report(fmt::format("{} of {} sections are cut off or missing: the core ends at byte {}", cut, count, bytes_.size()),
           kTakeAgain);
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.key() < b.key(); });
  if (find(kDevices, 0, 0) == nullptr) {
    return unusable(ErrorCode::kMalformed, subject_, "a GPU core without a table of devices", {},
                    "the core is damaged; take or copy it again");
  }
  return std::nullopt;
}

Elf64_Shdr Sections::header(std::uint64_t index) const {
  Elf64_Shdr h;
  std::memcpy(&h, headers_.data() + index * sizeof h, sizeof h);
  return h;
}

std::span<const std::byte> Sections::bytes_of(const Elf64_Shdr& h) const {
  return h.sh_type == SHT_NOBITS ? std::span<const std::byte>{} : elf::clip(bytes_, h.sh_offset, h.sh_size);
}

const Sections::Entry* Sections::find(SectionType type, std::uint32_t parent, std::uint64_t row) const {
  const auto below = [&](const Entry& e) {
    return std::tuple(e.type, e.parent, std::uint64_t{e.row}) < std::tuple(std::uint32_t{type}, parent, row);
  };
  const auto it = std::partition_point(entries_.begin(), entries_.end(), below);
  return it != entries_.end() && it->type == type && it->parent == parent && it->row == row ? &*it : nullptr;
}

Table Sections::table_of(std::uint32_t section, std::uint64_t least) {
  const Elf64_Shdr h = header(section);
  if (h.sh_size == 0) return {};
  if (h.sh_entsize < least) {
    if (!short_rows_reported_) {
      report(fmt::format("section {} has rows of {} bytes where {} are the fewest: it is left out", section,
                         h.sh_entsize, least),
             "the core is damaged; take or copy it again");
    }
    short_rows_reported_ = true;
    return {};
  }
  return Table(section, bytes_of(h), h.sh_entsize);
}

Table Sections::table(SectionType type, std::uint32_t parent, std::uint64_t row, std::uint64_t least) {
  const Entry* entry = find(type, parent, row);
  return entry != nullptr ? table_of(entry->section, least) : Table();
}

std::span<const std::byte> Sections::contents(SectionType type, std::uint32_t parent, std::uint64_t row) const {
  const Entry* entry = find(type, parent, row);
  return entry != nullptr ? bytes_of(header(entry->section)) : std::span<const std::byte>{};
}

std::vector<Table> Sections::tables(SectionType type, std::span<const std::pair<std::uint32_t, std::uint64_t>> wanted,
                                    std::uint64_t least) {
  std::vector<Table> found(wanted.size());
  const std::uint64_t count = wanted.empty() ? 0 : headers_.size() / sizeof(Elf64_Shdr);
  for (std::uint64_t i = 1; i < count; ++i) {
    const Elf64_Shdr h = header(i);
    if (h.sh_type != type || h.sh_size == 0) continue;
    const auto it = std::lower_bound(wanted.begin(), wanted.end(), std::pair(h.sh_link, std::uint64_t{h.sh_info}));
    if (it == wanted.end() || it->first != h.sh_link || it->second != h.sh_info) continue;
    Table& table = found[static_cast<std::size_t>(it - wanted.begin())];
    if (table.size() == 0) table = table_of(static_cast<std::uint32_t>(i), least);
  }
  return found;
}

std::string Sections::text(std::uint64_t offset) const {
  constexpr std::size_t kLongest = 256;
  const auto rest = elf::clip(strings_, offset, kLongest);
  const auto* text = reinterpret_cast<const char*>(rest.data());
  return rest.empty() ? std::string() : std::string(text, strnlen(text, rest.size()));
}

}  // namespace rankstacks::gpu::core
