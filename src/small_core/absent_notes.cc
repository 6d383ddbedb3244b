#include "small_core/absent_notes.h"

#include <elf.h>
#include <algorithm>
#include <cstring>
#include <string_view>

#include "elf/bytes.h"

namespace rankstacks::small_core {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMaxNotes = 4096;   // a library's have some hundred bytes
constexpr std::uint64_t kMaxSegments = 64;  // a library has some ten

// The first piece that ends behind the address.
std::span<const Piece>::iterator piece_at(std::span<const Piece> pieces, Address a) {
  return std::partition_point(pieces.begin(), pieces.end(),
                              [&](const Piece& piece) { return piece.start + piece.bytes.size() <= a; });
}

}  // namespace

AbsentNotes::AbsentNotes(std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    const auto header = elf::load<Elf64_Ehdr>(piece.bytes, 0);
    if (piece.start % kPage != 0 || !header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phentsize != sizeof(Elf64_Phdr))
      continue;
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(header->e_phnum, kMaxSegments); ++i) {
      const auto segment = elf::load<Elf64_Phdr>(piece.bytes, header->e_phoff + i * sizeof(Elf64_Phdr));
      if (!segment) break;
      if (segment->p_type != PT_NOTE) continue;
      const Address at = piece.start + segment->p_offset;
      const auto covering = piece_at(pieces, at);
      if (covering == pieces.end() || covering->start > at)
        notes_.push_back({at, at + std::min(segment->p_filesz, kMaxNotes)});
    }
  }
  std::sort(notes_.begin(), notes_.end(), [](const Range& a, const Range& b) { return a.start < b.start; });
}

bool AbsentNotes::finds_build_id(std::span<const std::byte> file, const Range& gap) const {
  constexpr std::string_view kOwner("GNU\0", 4);
  // What is further away than the file is long is not read.
  const Address first = std::max(gap.start, gap.end - std::min<std::uint64_t>(file.size(), gap.end));
  auto note = std::partition_point(notes_.begin(), notes_.end(), [&](const Range& r) { return r.start < first; });
  for (; note != notes_.end() && note->start < gap.end; ++note) {
    const auto taken = file.subspan(file.size() - (gap.end - note->start));
    const std::string_view text(reinterpret_cast<const char*>(taken.data()), std::min(taken.size(), note->size()));
    if (text.find(kOwner) != text.npos) return true;
  }
  return false;
}

}  // namespace rankstacks::small_core
