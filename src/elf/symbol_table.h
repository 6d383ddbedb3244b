// One ELF symbol table in place in the file: nothing is copied or sorted.
#pragma once

#include <elf.h>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/types.h"

namespace rankstacks::elf {

struct Symbol {
  std::string_view name;  // mangled, as the table has it
  Vaddr value = 0;
  std::uint64_t size = 0;
  unsigned char type = 0;  // STT_*
  unsigned char bind = 0;  // STB_*
};

// Views into an image's bytes, which must outlive it. Any of them may be empty or cut off; nothing outside them is
// read.
struct SymbolTable {
  std::span<const std::byte> symbols;  // an Elf64_Sym each, of any alignment
  std::span<const std::byte> strings;
  std::span<const std::byte> section_indices;  // SHT_SYMTAB_SHNDX: for st_shndx == SHN_XINDEX
  // .gnu.hash or DT_GNU_HASH; from its start, possibly longer than the table.
  std::span<const std::byte> gnu_hash;
  std::span<const std::byte> sysv_hash;  // .hash or DT_HASH; likewise

  std::size_t size() const { return symbols.size() / sizeof(Elf64_Sym); }
  Elf64_Sym at(std::size_t index) const {
    Elf64_Sym symbol;
    std::memcpy(&symbol, symbols.data() + index * sizeof(Elf64_Sym), sizeof symbol);
    return symbol;
  }
  // Empty if the name does not end (with a 0) inside of the string table, or is longer than 64 KiB.
  std::string_view name(const Elf64_Sym& symbol) const;
  // name(symbol) == wanted, without computing the length of the name: for searches over a large table.
  bool is_named(const Elf64_Sym& symbol, std::string_view wanted) const;

  // The section in which symbol `index` is defined; std::nullopt for undefined and special ones (SHN_UNDEF, SHN_ABS,
  // SHN_COMMON).
  std::optional<std::uint32_t> section_of(std::size_t index, const Elf64_Sym& symbol) const;

  // The first definition of that name: by the GNU hash, else by the SysV hash, else (no hash) by comparing every
  // symbol.
  std::optional<Symbol> find(std::string_view wanted) const;

  // Whether the table has the name undefined, as that of a symbol of another file. Linear in the undefined symbols of a
  // table with a GNU hash, else in all.
  bool has_undefined(std::string_view wanted) const;
};

// The number of symbols of a table whose size is stated nowhere (DT_SYMTAB has no size), computed from its hash. 0 if
// the hash is broken or missing, or has more words than are left of `words_left`. The words read are subtracted from
// it.
std::size_t count_symbols(const SymbolTable& table, std::uint64_t& words_left);

}  // namespace rankstacks::elf
