// An ELF file of a few debug sections, written into memory: what libdw is given where the sections do not lie in one
// file as it needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <elf.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks {

// Laid out as: header, the sections' bytes, their names, the table of section headers.
class DebugElf {
 public:
  static constexpr std::size_t kMaxSections =
      SHN_LORESERVE - 3;  // with none, .shstrtab, and numbers that are not reserved

  // A section of `size` bytes, the next in the file.
  void add(std::string_view name, std::uint64_t size);
  // The length of all sections so far.
  std::uint64_t size() const { return size_; }
  std::size_t count() const { return headers_.size() - 1; }

  // Allocates the file, zeros in its sections, which are filled through contents() then. Nothing can be added
  // afterwards.
  void lay_out(std::uint16_t type);
  std::span<std::byte> contents(std::size_t section);
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<Elf64_Shdr> headers_ = std::vector<Elf64_Shdr>(1);  // section 0 is none
  std::string names_ = std::string(1, '\0');
  std::uint64_t size_ = sizeof(Elf64_Ehdr);
  std::vector<std::byte> bytes_;
};

}  // namespace rankstacks
