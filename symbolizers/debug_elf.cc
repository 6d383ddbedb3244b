#include "symbolizers/debug_elf.h"

#include <cstring>

namespace rankstacks::symbolizers {
namespace {

std::uint64_t aligned(std::uint64_t offset) { return (offset + 15) & ~std::uint64_t{15}; }

template <class T>
void put(std::vector<std::byte>& bytes, std::uint64_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

}  // namespace

void DebugElf::add(std::string_view name, std::uint64_t size) {
  Elf64_Shdr header{};
  header.sh_name = static_cast<Elf64_Word>(names_.size());
  header.sh_type = SHT_PROGBITS;
  header.sh_offset = aligned(size_);
  header.sh_size = size;
  header.sh_addralign = 1;
  headers_.push_back(header);
  names_.append(name).push_back('\0');
  size_ = header.sh_offset + size;
}

void DebugElf::lay_out(std::uint16_t type) {
  Elf64_Shdr names{};
  names.sh_name = static_cast<Elf64_Word>(names_.size());
  names_.append(".shstrtab").push_back('\0');
  names.sh_type = SHT_STRTAB;
  names.sh_offset = aligned(size_);
  names.sh_size = names_.size();
  names.sh_addralign = 1;
  headers_.push_back(names);

  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = type;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_shoff = aligned(names.sh_offset + names_.size());
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(headers_.size());
  header.e_shstrndx = static_cast<Elf64_Half>(headers_.size() - 1);

  bytes_.resize(header.e_shoff + headers_.size() * sizeof(Elf64_Shdr));
  put(bytes_, 0, header);
  std::memcpy(bytes_.data() + names.sh_offset, names_.data(), names_.size());
  for (std::size_t i = 0; i < headers_.size(); ++i) put(bytes_, header.e_shoff + i * sizeof(Elf64_Shdr), headers_[i]);
}

std::span<std::byte> DebugElf::contents(std::size_t section) {
  const Elf64_Shdr& header = headers_[section + 1];
  return std::span(bytes_).subspan(header.sh_offset, header.sh_size);
}

}  // namespace rankstacks::symbolizers
