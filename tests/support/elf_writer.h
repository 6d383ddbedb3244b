// Writes small ELF files byte by byte: a sound core, of which a test then breaks one place.
//
//     ELF header | program headers: PT_NOTE, PT_LOAD ... | notes | memory ...
#pragma once

#include <elf.h>
#include <sys/procfs.h>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rankstacks::testing {

using Bytes = std::vector<std::byte>;

inline void append(Bytes& to, std::span<const std::byte> bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }
inline void append(Bytes& to, std::string_view text) { append(to, std::as_bytes(std::span(text))); }
template <class T>
void append_value(Bytes& to, const T& value) {
  append(to, std::as_bytes(std::span(&value, 1)));
}
template <class T>
Bytes bytes_of(const T& value) {
  Bytes bytes;
  append_value(bytes, value);
  return bytes;
}

struct MappedFileEntry {
  std::uint64_t start, end, offset;  // offset: in units of the page size given
  std::string path;
};

inline Bytes thread_note(int tid, int signal, std::uint64_t pc, std::uint64_t sp) {
  elf_prstatus status{};
  status.pr_pid = tid;
  status.pr_cursig = static_cast<short>(signal);
  status.pr_info.si_signo = signal;
  status.pr_reg[16] = pc;  // <sys/reg.h>: RIP
  status.pr_reg[19] = sp;  // RSP
  return bytes_of(status);
}

inline Bytes process_note(int pid, std::string_view name, std::string_view arguments) {
  elf_prpsinfo info{};
  info.pr_pid = pid;
  std::memcpy(info.pr_fname, name.data(), std::min(name.size(), sizeof info.pr_fname));
  std::memcpy(info.pr_psargs, arguments.data(), std::min(arguments.size(), sizeof info.pr_psargs));
  return bytes_of(info);
}

inline Bytes nt_file_note(std::uint64_t page_size, const std::vector<MappedFileEntry>& entries) {
  Bytes note;
  append_value(note, std::uint64_t{entries.size()});
  append_value(note, page_size);
  for (const MappedFileEntry& e : entries) {
    append_value(note, e.start);
    append_value(note, e.end);
    append_value(note, e.offset);
  }
  for (const MappedFileEntry& e : entries) append(note, std::string_view(e.path.c_str(), e.path.size() + 1));
  return note;
}

inline Bytes auxv_note(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& entries) {
  Bytes note;
  for (const auto& [type, value] : entries) {
    append_value(note, type);
    append_value(note, value);
  }
  append_value(note, std::uint64_t{AT_NULL});
  append_value(note, std::uint64_t{0});
  return note;
}

class CoreWriter {
 public:
  void add_note(std::uint32_t type, std::span<const std::byte> body, std::string_view owner = "CORE") {
    append_value(notes_,
                 Elf64_Nhdr{static_cast<Elf64_Word>(owner.size() + 1), static_cast<Elf64_Word>(body.size()), type});
    append(notes_, std::string_view(std::string(owner).c_str(), owner.size() + 1));
    pad(notes_);
    append(notes_, body);
    pad(notes_);
  }
  void add_memory(std::uint64_t address, Bytes bytes, std::uint64_t size_in_memory, std::uint32_t flags = PF_R | PF_W) {
    memory_.push_back({address, size_in_memory, flags, std::move(bytes)});
  }

  // Lets a test break something: called with the sound headers just before they are written.
  std::function<void(Elf64_Ehdr&)> change_header;
  std::function<void(std::vector<Elf64_Phdr>&)> change_segments;

  Bytes write() const {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_CORE;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_phoff = header.e_ehsize = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    std::vector<Elf64_Phdr> segments;
    std::uint64_t at = sizeof header + (memory_.size() + 1) * sizeof(Elf64_Phdr);
    segments.push_back({.p_type = PT_NOTE, .p_offset = at, .p_filesz = notes_.size(), .p_align = 4});
    at += notes_.size();
    for (const Memory& m : memory_) {
      segments.push_back({.p_type = PT_LOAD,
                          .p_flags = m.flags,
                          .p_offset = at,
                          .p_vaddr = m.address,
                          .p_filesz = m.bytes.size(),
                          .p_memsz = m.size,
                          .p_align = 1});
      at += m.bytes.size();
    }
    header.e_phnum = static_cast<Elf64_Half>(segments.size());
    if (change_header) change_header(header);
    if (change_segments) change_segments(segments);
    Bytes file = bytes_of(header);
    for (const Elf64_Phdr& p : segments) append_value(file, p);
    append(file, notes_);
    for (const Memory& m : memory_) append(file, m.bytes);
    return file;
  }

 private:
  struct Memory {
    std::uint64_t address, size;
    std::uint32_t flags;
    Bytes bytes;
  };
  static void pad(Bytes& bytes) { bytes.resize((bytes.size() + 3) & ~std::size_t{3}); }

  Bytes notes_;
  std::vector<Memory> memory_;
};

}  // namespace rankstacks::testing
