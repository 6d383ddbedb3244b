// Small ELF files made of literal parts, for tests of one defect each.
#pragma once

#include <elf.h>
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace rankstacks::testing {

// Header, program headers, the sections' bytes, section headers. A test may change `header` and the tables before it
// calls bytes().
struct TinyElf {
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Shdr> sections;  // begins with the null section once add_section() was called
  std::vector<std::byte> body;       // placed at kBody
  std::string names = std::string(1, '\0');

  static constexpr std::uint64_t kBody = 0x400;

  TinyElf() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof(Elf64_Ehdr);
  }

  std::uint64_t add_bytes(const void* data, std::size_t size) {
    const std::uint64_t offset = kBody + body.size();
    const auto* first = static_cast<const std::byte*>(data);
    body.insert(body.end(), first, first + size);
    body.resize((body.size() + 15) / 16 * 16);
    return offset;
  }

  Elf64_Shdr& add_section(const std::string& name, std::uint32_t type, const std::string& contents) {
    if (sections.empty()) sections.emplace_back();
    Elf64_Shdr section{};
    section.sh_name = static_cast<Elf64_Word>(names.size());
    names += name + '\0';
    section.sh_type = type;
    section.sh_offset = add_bytes(contents.data(), contents.size());
    section.sh_size = contents.size();
    sections.push_back(section);
    return sections.back();
  }

  Elf64_Phdr& add_segment(std::uint32_t type, std::uint64_t offset, std::uint64_t size) {
    Elf64_Phdr segment{};
    segment.p_type = type;
    segment.p_offset = segment.p_vaddr = offset;
    segment.p_filesz = segment.p_memsz = size;
    segments.push_back(segment);
    return segments.back();
  }

  // Fills in the header's fields for the tables, and gives the sections their names (.shstrtab comes last).
  void finish() {
    if (!segments.empty()) {
      header.e_phoff = sizeof(Elf64_Ehdr);
      header.e_phentsize = sizeof(Elf64_Phdr);
      header.e_phnum = static_cast<Elf64_Half>(segments.size());
    }
    if (sections.empty()) return;
    const std::string all = names + ".shstrtab" + '\0';
    add_section(".shstrtab", SHT_STRTAB, all);
    header.e_shoff = kBody + body.size();
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<Elf64_Half>(sections.size());
    header.e_shstrndx = static_cast<Elf64_Half>(sections.size() - 1);
  }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> file(kBody + body.size() + sections.size() * sizeof(Elf64_Shdr));
    std::memcpy(file.data(), &header, sizeof header);
    const auto put = [&](std::size_t at, const auto& items) {
      const auto bytes = std::as_bytes(std::span(items));
      std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(sizeof header, segments);
    put(kBody, body);
    put(kBody + body.size(), sections);
    return file;
  }
};

inline std::string note(const std::string& name, std::uint32_t type, const std::string& description) {
  const Elf64_Nhdr header{static_cast<Elf64_Word>(name.size() + 1), static_cast<Elf64_Word>(description.size()), type};
  const auto padded = [](std::string text) {
    text.resize((text.size() + 3) / 4 * 4);
    return text;
  };
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + padded(name + '\0') + padded(description);
}

}  // namespace rankstacks::testing
