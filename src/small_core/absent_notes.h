// Notes that libdwfl looks for where a core has no memory.
//
// For an address that no PT_LOAD covers, libdwfl reads the file in front of the next one's bytes, as far as the address
// lies below it (core-file.c of elfutils 0.188, dwfl_elf_phdr_memory_callback):
//
//     addresses    ... A |  absent: note  | B ...      note = B - d
//     file         ... A | B ...                       read at offset(B) - d: bytes of A or of what is before it
//
// It looks for the notes of each module at its start + p_offset. If it finds another module's build-id there, it takes
// it for that module's, and gives up the whole core because the address is not one of the module ("address out of
// range").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "small_core/kept_process.h"

namespace rankstacks::small_core {

class AbsentNotes {
 public:
  // `pieces`: by address.
  explicit AbsentNotes(std::span<const Piece> pieces);

  // Whether libdwfl would find a build-id in `file` in place of a note between two pieces if the later one's bytes
  // followed at its end. `gap`: from the end of the one to the start of the other.
  bool finds_build_id(std::span<const std::byte> file, const Range& gap) const;

 private:
  std::vector<Range> notes_;  // by address
};

}  // namespace rankstacks::small_core
