// Writes entries of .eh_frame byte by byte, and a library around them. They are sound; a test then breaks one place.
//
//     vaddr 0: ELF header, program headers | .eh_frame_hdr | CIE | FDE ... | code, one function behind the other
#pragma once

#include <dwarf.h>

#include "elf/image.h"
#include "support/elf_writer.h"
#include "support/fake_target.h"
#include "support/library_header.h"

namespace rankstacks::testing {

inline Bytes bytes(std::initializer_list<int> values) {
  Bytes out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}
inline Bytes operator+(Bytes a, const Bytes& b) {
  append(a, b);
  return a;
}
inline Bytes uleb(std::uint64_t value) {
  Bytes out;
  for (; value >= 0x80; value >>= 7) append_value(out, static_cast<std::uint8_t>(value | 0x80));
  append_value(out, static_cast<std::uint8_t>(value));
  return out;
}

// What every entry begins with: its length.
inline Bytes with_length(const Bytes& body) { return bytes_of(static_cast<std::uint32_t>(body.size())) + body; }

// As GCC writes it: the CFA is rsp + 8, the return address is directly below it.
struct CieBytes {
  std::uint32_t id = 0;
  std::uint8_t version = 1;
  std::string augmentation = "zR";
  std::uint64_t code_alignment = 1;
  Bytes return_column = bytes({16});
  Bytes augmentation_data = bytes({DW_EH_PE_pcrel | DW_EH_PE_sdata4});
  Bytes instructions = bytes({DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1});

  Bytes write() const {
    Bytes body = bytes_of(id) + bytes_of(version);
    append(body, std::string_view(augmentation.c_str(), augmentation.size() + 1));
    append(body, uleb(code_alignment) + bytes({0x78}) + return_column);  // the data alignment is -8
    if (augmentation.starts_with('z')) append(body, uleb(augmentation_data.size()) + augmentation_data);
    append(body, instructions);
    return with_length(body);
  }
};

// With the pointers of CieBytes.
struct FdeBytes {
  std::uint32_t size = 16;       // of the function
  Bytes augmentation = uleb(0);  // its length and data
  Bytes instructions;

  // For an entry at address `at`, describing the function at `start`.
  Bytes write(Address at, Address cie, Address start) const {
    return with_length(bytes_of(static_cast<std::uint32_t>(at + 4 - cie)) +
                       bytes_of(static_cast<std::int32_t>(start - (at + 8))) + bytes_of(size) + augmentation +
                       instructions);
  }
};

// A library of functions of 16 bytes, and a thread's stack.
class UnwindableTarget : public FakeTarget {
 public:
  static constexpr Address kBase = 0x7f00'0000'0000, kStack = 0x7ffc'0000'0000;
  static constexpr std::uint64_t kFunction = 16;

  UnwindableTarget(const CieBytes& cie, const std::vector<FdeBytes>& fdes,
                   int table_encoding = DW_EH_PE_datarel | DW_EH_PE_sdata4) {
    constexpr Vaddr kHeader = 0x200;
    const Vaddr frames = kHeader + 12 + 8 * fdes.size();
    Bytes cie_bytes = cie.write();
    std::uint64_t size = cie_bytes.size();
    for (const FdeBytes& fde : fdes) size += fde.write(0, 0, 0).size();
    code_ = (frames + size + 0xfff) & ~Vaddr{0xfff};

    Bytes table = bytes({1, DW_EH_PE_pcrel | DW_EH_PE_sdata4, DW_EH_PE_udata4, table_encoding}) +
                  bytes_of(static_cast<std::int32_t>(frames - (kHeader + 4))) +
                  bytes_of(static_cast<std::uint32_t>(fdes.size()));
    Bytes entries = cie_bytes;
    for (std::size_t i = 0; i < fdes.size(); ++i) {
      const Vaddr at = frames + entries.size(), start = code_ + kFunction * i;
      append(table,
             bytes_of(static_cast<std::int32_t>(start - kHeader)) + bytes_of(static_cast<std::int32_t>(at - kHeader)));
      append(entries, fdes[i].write(at, frames, start));
    }

    const Elf64_Ehdr header = library_header(3);
    const std::uint64_t code_size = kFunction * fdes.size();
    Bytes file = bytes_of(header) + bytes_of(Elf64_Phdr{PT_LOAD, PF_R, 0, 0, 0, code_, code_, 0x1000}) +
                 bytes_of(Elf64_Phdr{PT_LOAD, PF_R | PF_X, code_, code_, code_, code_size, code_size, 0x1000}) +
                 bytes_of(Elf64_Phdr{PT_GNU_EH_FRAME, PF_R, kHeader, kHeader, kHeader, table.size(), table.size(), 4});
    file.resize(kHeader);
    append(file, table + entries);
    file.resize(code_ + code_size, std::byte{0x90});

    auto image = elf::Image::from_bytes(file, "made.so");
    if (!image) throw std::runtime_error(image.error().what);
    const auto map = [this](Vaddr from, Vaddr to, bool executable) {
      target::Mapping m;
      m.range = {kBase + from, kBase + to};
      m.readable = true;
      m.executable = executable;
      m.path = "/lib/made.so";
      mappings_.push_back(m);
    };
    map(0, code_, false);
    map(code_, code_ + code_size, true);
    modules_ =
        target::ModuleMap({target::Module{"/lib/made.so", {kBase, kBase + code_ + code_size}, kBase, {}, *image, {}}});
    put(kBase, file);
  }

  // A pc in the middle of a function.
  Address pc(std::size_t function) const { return kBase + code_ + kFunction * function + 8; }

  // A thread in function `first`, with these words on its stack.
  target::Registers thread(std::size_t first, const std::vector<std::uint64_t>& stack) {
    Bytes words;
    for (const std::uint64_t w : stack) append_value(words, w);
    put(kStack, words);
    target::Registers registers;
    for (unsigned r = 0; r < target::kDwarfRegisters; ++r) registers.set(r, 1);
    registers.set(target::kRip, pc(first));
    registers.set(target::kRsp, kStack);
    return registers;
  }

 private:
  Vaddr code_ = 0;
};

}  // namespace rankstacks::testing
