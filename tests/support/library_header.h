// The ELF header of a shared library whose program headers follow at once.
#pragma once

#include <elf.h>
#include <cstdint>
#include <cstring>

namespace rankstacks::testing {

inline Elf64_Ehdr library_header(std::uint16_t segments) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_phoff = header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = segments;
  return header;
}

}  // namespace rankstacks::testing
