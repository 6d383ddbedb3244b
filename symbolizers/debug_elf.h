// Builds an ELF file of a few debug sections in memory, for libdw, if the sections are not together in one file as
// libdw needs them.
#pragma once

#include <elf.h>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::symbolizers {

// The layout is: header, the bytes of the sections, their names, the table of section headers.
class DebugElf {
 public:
  static constexpr std::size_t kMaxSections =
      SHN_LORESERVE - 3;  // so that section 0 and .shstrtab fit below the reserved numbers, too

  // Adds a section of `size` bytes, the next in the file.
  void add(std::string_view name, std::uint64_t size);
  // The size of all sections added so far.
  std::uint64_t size() const { return size_; }
  std::size_t count() const { return headers_.size() - 1; }

  // Allocates the file with zeros in its sections, to be filled through contents(). No section can be added afterwards.
  void lay_out(std::uint16_t type);
  std::span<std::byte> contents(std::size_t section);
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<Elf64_Shdr> headers_ = std::vector<Elf64_Shdr>(1);  // section 0 is the null section
  std::string names_ = std::string(1, '\0');
  std::uint64_t size_ = sizeof(Elf64_Ehdr);
  std::vector<std::byte> bytes_;
};

}  // namespace rankstacks::symbolizers
