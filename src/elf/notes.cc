#include "elf/notes.h"

#include <elf.h>
#include <cstring>

#include "elf/bytes.h"

namespace rankstacks::elf {
namespace {

// Linkers write 8, 16, 20 or 32 bytes; --build-id=0xHEX allows any length. Anything longer is not taken as an id.
constexpr std::uint32_t kLongestBuildId = 256;

}  // namespace

BuildId build_id_of_notes(std::span<const std::byte> notes, std::uint64_t alignment) {
  // Names and descriptors are padded to 4 bytes, or to 8 if the segment's alignment is 8 (.note.gnu.property).
  const std::uint64_t align = alignment == 8 ? 8 : 4;
  const auto padded = [align](std::uint64_t n) { return (n + align - 1) & ~(align - 1); };
  std::uint64_t at = 0;
  while (const auto header = load<Elf64_Nhdr>(notes, at)) {
    const std::uint64_t name_at = at + sizeof(Elf64_Nhdr);
    const std::uint64_t description_at = at + padded(sizeof(Elf64_Nhdr) + std::uint64_t{header->n_namesz});
    const auto name = exactly(notes, name_at, header->n_namesz);
    const auto description = exactly(notes, description_at, header->n_descsz);
    if (header->n_type == NT_GNU_BUILD_ID && name.size() == sizeof ELF_NOTE_GNU && !description.empty() &&
        description.size() <= kLongestBuildId && std::memcmp(name.data(), ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
      const auto* first = reinterpret_cast<const std::uint8_t*>(description.data());
      return BuildId(first, first + description.size());
    }
    at = padded(description_at + header->n_descsz);
  }
  return {};
}

}  // namespace rankstacks::elf
