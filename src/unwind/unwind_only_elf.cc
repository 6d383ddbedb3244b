#include "unwind/unwind_only_elf.h"

#include <sys/mman.h>
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace rankstacks::unwind {
namespace {

bool is_debug(std::string_view name) {
  return name.starts_with(".debug_") || name.starts_with(".zdebug_") || name.starts_with(".gnu.debug");
}
bool is_unwind_table(std::string_view name) {
  return name == ".eh_frame" || name == ".eh_frame_hdr" || name == ".debug_frame" || name == ".zdebug_frame";
}

}  // namespace

bool UnwindOnlyElf::is_needed(const elf::Image& image) {
  return std::any_of(image.sections().begin(), image.sections().end(), [](const elf::Section& s) {
    return (s.header.sh_flags & SHF_COMPRESSED) != 0 || s.name.starts_with(".zdebug_");
  });
}

std::optional<UnwindOnlyElf> UnwindOnlyElf::copy_of(const elf::Image& image) {
  const auto from = image.bytes();
  if (from.size() < sizeof(Elf64_Ehdr)) return std::nullopt;
  void* memory = mmap(nullptr, from.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return std::nullopt;
  UnwindOnlyElf made({static_cast<std::byte*>(memory), from.size()});
  // In a sound file no byte is in two sections. The tables and names of the largest library seen, libtorch_cuda, have
  // 200 MB.
  constexpr std::uint64_t kMaxTaken = std::uint64_t{1} << 30;
  std::uint64_t left = std::min<std::uint64_t>(2 * from.size(), kMaxTaken);
  const auto take = [&](std::uint64_t offset, std::uint64_t size) {
    if (offset >= from.size()) return;
    const std::uint64_t n = std::min({size, from.size() - offset, left});
    std::memcpy(made.bytes_.data() + offset, from.data() + offset, n);
    left -= n;
  };

  Elf64_Ehdr header;
  std::memcpy(&header, from.data(), sizeof header);
  take(0, sizeof header);
  take(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
  take(header.e_shoff, image.sections().size() * sizeof(Elf64_Shdr));
  for (const Elf64_Phdr& segment : image.segments()) {
    if (segment.p_type == PT_GNU_EH_FRAME || segment.p_type == PT_NOTE) take(segment.p_offset, segment.p_filesz);
  }
  for (std::size_t i = 0; i < image.sections().size(); ++i) {
    const elf::Section& section = image.sections()[i];
    if (is_unwind_table(section.name) || section.header.sh_type == SHT_STRTAB) {
      take(section.header.sh_offset, section.header.sh_type == SHT_NOBITS ? 0 : section.header.sh_size);
    } else if (is_debug(section.name) || (section.header.sh_flags & SHF_COMPRESSED) != 0) {
      const std::uint64_t at = header.e_shoff + i * sizeof(Elf64_Shdr);
      if (header.e_shoff > from.size() || from.size() - header.e_shoff < (i + 1) * sizeof(Elf64_Shdr)) break;
      Elf64_Shdr empty = section.header;
      empty.sh_type = SHT_NOBITS;
      empty.sh_flags &= ~std::uint64_t{SHF_COMPRESSED};
      std::memcpy(made.bytes_.data() + at, &empty, sizeof empty);
    }
  }
  return made;
}

UnwindOnlyElf::UnwindOnlyElf(UnwindOnlyElf&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

UnwindOnlyElf::~UnwindOnlyElf() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace rankstacks::unwind
