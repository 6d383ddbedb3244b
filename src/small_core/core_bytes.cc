// Lays a small core out as a file:
//
//     ELF header | program headers | notes | memory, each piece at an offset that is its address modulo a page |
//     this tool's own notes | section 0, if there are more than 65,534 program headers
//
// A page more is between two pieces where libdwfl would else take one module's note for another's (absent_notes.h).
//
// The kernel's notes come first: libdwfl reads the first PT_NOTE only. Memory that is left out has no program header:
// gdb reads the bytes between p_filesz and p_memsz as zeros, and an address without any as absent.
#include <elf.h>
#include <algorithm>
#include <array>
#include <cstring>

#include "small_core/absent_notes.h"
#include "small_core/kept_process.h"

namespace rankstacks::small_core {
namespace {

constexpr std::uint64_t kPage = 4096;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::byte> own_notes(const KeptProcess& process, std::string_view report) {
  using target::OwnNote;
  std::vector<std::byte> notes;
  const auto add = [&](OwnNote kind, std::span<const std::byte> body) {
    if (!body.empty()) target::append_note(notes, target::kNoteOwner, static_cast<std::uint32_t>(kind), body);
  };
  const std::array<std::uint32_t, 2> version = {target::kNotesVersion,
                                                process.has_all_symbols ? target::kHasAllSymbols : 0};
  add(OwnNote::kVersion, std::as_bytes(std::span(version)));
  add(OwnNote::kReport, bytes_of(report));
  add(OwnNote::kMappings, target::mappings_note(process.mappings));
  add(OwnNote::kStacks, process.stacks);
  add(OwnNote::kSymbols, process.symbols);
  add(OwnNote::kInterpreters, process.interpreters);
  add(OwnNote::kFiles, process.files);
  return notes;
}

class CoreLayout {
 public:
  explicit CoreLayout(std::size_t headers) : headers_(headers) {
    file_.resize(sizeof(Elf64_Ehdr) + headers * sizeof(Elf64_Phdr));
  }

  void add_notes(std::span<const std::byte> notes) {
    Elf64_Phdr header{.p_type = PT_NOTE, .p_flags = PF_R, .p_offset = file_.size(), .p_filesz = notes.size()};
    header.p_align = 4;
    put(header);
    file_.insert(file_.end(), notes.begin(), notes.end());
    file_.resize((file_.size() + 7) & ~std::size_t{7});
  }

  void add_piece(const Piece& piece, const AbsentNotes& absent) {
    file_.resize(file_.size() + (piece.start - file_.size()) % kPage);
    for (int more = 0; more < kMaxPadding && absent.finds_build_id(file_, {covered_, piece.start}); ++more)
      file_.resize(file_.size() + kPage);
    covered_ = piece.start + piece.bytes.size();
    put({.p_type = PT_LOAD,
         .p_flags = piece.flags,
         .p_offset = file_.size(),
         .p_vaddr = piece.start,
         .p_filesz = piece.bytes.size(),
         .p_memsz = piece.bytes.size(),
         .p_align = kPage});
    file_.insert(file_.end(), piece.bytes.begin(), piece.bytes.end());
  }

  std::vector<std::byte> take() {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_CORE;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_phoff = sizeof header;
    header.e_ehsize = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = static_cast<Elf64_Half>(std::min<std::size_t>(headers_, PN_XNUM));
    if (headers_ >= PN_XNUM) {
      // Section 0 has the number of program headers (ELF gABI, "Program Header").
      file_.resize((file_.size() + 7) & ~std::size_t{7});
      header.e_shoff = file_.size();
      header.e_shentsize = sizeof(Elf64_Shdr);
      header.e_shnum = 1;
      const Elf64_Shdr section{.sh_size = 1, .sh_info = static_cast<Elf64_Word>(headers_)};
      const auto bytes = std::as_bytes(std::span(&section, 1));
      file_.insert(file_.end(), bytes.begin(), bytes.end());
    }
    std::memcpy(file_.data(), &header, sizeof header);
    return std::move(file_);
  }

 private:
  void put(const Elf64_Phdr& header) {
    std::memcpy(file_.data() + sizeof(Elf64_Ehdr) + next_++ * sizeof header, &header, sizeof header);
  }

  static constexpr int kMaxPadding = 64;  // pages: one is enough as a rule

  std::size_t headers_, next_ = 0;
  Address covered_ = 0;  // the end of the last piece
  std::vector<std::byte> file_;
};

}  // namespace

std::vector<std::byte> core_bytes(const KeptProcess& process, std::string_view report) {
  CoreLayout layout(2 + process.pieces.size());
  layout.add_notes(process.notes);
  const AbsentNotes absent(process.pieces);
  for (const Piece& piece : process.pieces) layout.add_piece(piece, absent);
  layout.add_notes(own_notes(process, report));
  return layout.take();
}

}  // namespace rankstacks::small_core
