// The first page of a library whose note is at another place of the file than in memory, as patchelf makes them.
#pragma once

#include <elf.h>
#include <cstring>
#include <vector>

#include "support/library_header.h"

namespace rankstacks::testing {

inline std::vector<std::byte> library_with_moved_note(std::uint64_t offset, std::uint64_t address, std::uint64_t size) {
  const Elf64_Ehdr header = library_header(2);
  const Elf64_Phdr segments[] = {
      {.p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = 0x1000, .p_memsz = 0x1000, .p_align = 0x1000},
      {.p_type = PT_NOTE, .p_offset = offset, .p_vaddr = address, .p_filesz = size, .p_memsz = size, .p_align = 4}};
  std::vector<std::byte> page(0x1000);
  std::memcpy(page.data(), &header, sizeof header);
  std::memcpy(page.data() + sizeof header, segments, sizeof segments);
  return page;
}

}  // namespace rankstacks::testing
