#include "unwind/unwind_only_elf.h"

#include <sys/mman.h>
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace rankstacks::unwind {
namespace {

bool is_debug(std::string_view name) {
  return name.starts_with(".debug_") || name.starts_with(".zdebug_") || name.starts_with(".gnu.debug");
}
bool is_unwind_table(std::string_view name) {
  return name == ".eh_frame" || name == ".eh_frame_hdr" || name == ".debug_frame" || name == ".zdebug_frame";
}

// Copies parts of a file to the same places of the copy.
class Copier {
 public:
  Copier(std::span<const std::byte> from, std::span<std::byte> to)
      : from_(from), to_(to), left_(std::min<std::uint64_t>(2 * from.size(), kMaxTaken)) {}

  bool write(std::uint64_t offset, const void* bytes, std::uint64_t size) {
    constexpr std::uint64_t kPage = 4096;
    const std::uint64_t first = offset & ~(kPage - 1);
    if (size == 0) return true;
    if (mprotect(to_.data() + first, offset + size - first, PROT_READ | PROT_WRITE) != 0) return false;
    std::memcpy(to_.data() + offset, bytes, size);
    return true;
  }

  void take(std::uint64_t offset, std::uint64_t size) {
    if (offset >= from_.size()) return;
    const std::uint64_t n = std::min({size, from_.size() - offset, left_});
    if (write(offset, from_.data() + offset, n)) left_ -= n;
  }

  // Whether a table of headers may lie there.
  bool fits(std::uint64_t offset, std::uint64_t size) const {
    return offset >= sizeof(Elf64_Ehdr) && offset <= from_.size() && size <= from_.size() - offset;
  }

 private:
  // In a sound file no byte is in two sections. The tables and names of the largest library seen, libtorch_cuda, have
  // 200 MB.
  static constexpr std::uint64_t kMaxTaken = std::uint64_t{1} << 30;
  std::span<const std::byte> from_;
  std::span<std::byte> to_;
  std::uint64_t left_;
};

// Copies the sections and segments that unwinding needs. Returns the headers of all sections, with those that it does
// not need declared empty.
std::vector<Elf64_Shdr> take_tables(Copier& copier, const elf::Image& image, const Elf64_Ehdr& header) {
  for (const Elf64_Phdr& segment : image.segments())
    if (segment.p_type == PT_GNU_EH_FRAME || segment.p_type == PT_NOTE) copier.take(segment.p_offset, segment.p_filesz);
  std::vector<Elf64_Shdr> sections;
  bool has_table = false;
  for (std::size_t i = 0; i < image.sections().size(); ++i) {
    const elf::Section& section = image.sections()[i];
    Elf64_Shdr own = section.header;
    const bool is_names = i == header.e_shstrndx && own.sh_type == SHT_STRTAB;
    if (is_unwind_table(section.name) || is_names) {
      if (own.sh_type != SHT_NOBITS) copier.take(own.sh_offset, own.sh_size);
      has_table = has_table || section.name == ".eh_frame";
    } else if (is_debug(section.name) || (own.sh_flags & SHF_COMPRESSED) != 0) {
      own.sh_type = SHT_NOBITS;
      own.sh_flags &= ~std::uint64_t{SHF_COMPRESSED};
    }
    sections.push_back(own);
  }
  const auto search_table = image.eh_frame_hdr();
  if (const Elf64_Phdr* load = search_table && !has_table ? image.load_of(*search_table) : nullptr)
    copier.take(load->p_offset, load->p_filesz);
  return sections;
}

}  // namespace

bool UnwindOnlyElf::is_needed(const elf::Image& image) {
  if (image.others_may_change()) return true;
  return std::any_of(image.sections().begin(), image.sections().end(), [](const elf::Section& s) {
    return (s.header.sh_flags & SHF_COMPRESSED) != 0 || s.name.starts_with(".zdebug_");
  });
}

std::optional<UnwindOnlyElf> UnwindOnlyElf::copy_of(const elf::Image& image) {
  const auto from = image.bytes();
  if (from.size() < sizeof(Elf64_Ehdr)) return std::nullopt;
  // Only what is filled in can be written to, and counts towards the limit of memory (RLIMIT_DATA).
  void* memory = mmap(nullptr, from.size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return std::nullopt;
  UnwindOnlyElf made({static_cast<std::byte*>(memory), from.size()});
  Copier copier(from, made.bytes_);
  Elf64_Ehdr header;
  std::memcpy(&header, from.data(), sizeof header);
  // The Image has checked these once; the bytes may have changed since.
  const auto& segments = image.segments();
  if (segments.empty()) header.e_phoff = 0;
  else if (segments.size() >= PN_XNUM || !copier.fits(header.e_phoff, segments.size_bytes())) return std::nullopt;
  header.e_phnum = static_cast<Elf64_Half>(segments.size());
  const std::vector<Elf64_Shdr> sections = take_tables(copier, image, header);
  const std::uint64_t size = sections.size() * sizeof(Elf64_Shdr);
  if (sections.empty() || sections.size() >= SHN_LORESERVE || !copier.fits(header.e_shoff, size)) {
    header.e_shoff = header.e_shnum = header.e_shstrndx = 0;
  } else {
    header.e_shnum = static_cast<Elf64_Half>(sections.size());
    if (!copier.write(header.e_shoff, sections.data(), size)) return std::nullopt;
  }
  // Last, as the vetting of tables relies on the segments.
  if (!copier.write(header.e_phoff, segments.data(), segments.size_bytes()) || !copier.write(0, &header, sizeof header))
    return std::nullopt;
  return made;
}

UnwindOnlyElf::UnwindOnlyElf(UnwindOnlyElf&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

UnwindOnlyElf::~UnwindOnlyElf() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace rankstacks::unwind
