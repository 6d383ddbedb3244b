#include "elf/dynamic.h"

#include <algorithm>

#include "elf/bytes.h"

namespace rankstacks::elf {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr int kMaxBiases = 1 << 20;  // pages of a 4 GiB image
// How many of the biases tried may look plausible enough to have their hash walked.
constexpr int kMaxCounts = 64;
// Limit of all these walks together: a library of 600,000 symbols has a million words of hash.
constexpr std::uint64_t kMaxHashWords = std::uint64_t{1} << 27;

struct Pointers {
  std::uint64_t symbols = 0;
  std::uint64_t strings = 0;
  std::uint64_t strings_size = 0;
  std::uint64_t gnu_hash = 0;
  std::uint64_t sysv_hash = 0;
};

Pointers read_pointers(std::span<const std::byte> dynamic) {
  Pointers p;
  for (std::uint64_t at = 0; const auto entry = load<Elf64_Dyn>(dynamic, at); at += sizeof(Elf64_Dyn)) {
    switch (entry->d_tag) {
      case DT_NULL: return p;
      case DT_SYMTAB: p.symbols = entry->d_un.d_ptr; break;
      case DT_STRTAB: p.strings = entry->d_un.d_ptr; break;
      case DT_STRSZ: p.strings_size = entry->d_un.d_val; break;
      case DT_GNU_HASH: p.gnu_hash = entry->d_un.d_ptr; break;
      case DT_HASH: p.sysv_hash = entry->d_un.d_ptr; break;
      default: break;
    }
  }
  return p;
}

// Returns the table if the pointers, moved down by `bias`, lead to one: the null symbol is all zeros, the string table
// begins and ends with 0, a hash gives the number of symbols, and all of them exist.
SymbolTable table_at(const Pointers& p, const VaddrView& at, std::uint64_t bias, int& counts_left,
                     std::uint64_t& hash_words_left) {
  SymbolTable table;
  const auto symbols = at(p.symbols - bias);
  const auto null_symbol = exactly(symbols, 0, sizeof(Elf64_Sym));
  if (null_symbol.empty() ||
      std::any_of(null_symbol.begin(), null_symbol.end(), [](std::byte b) { return b != std::byte{0}; }))
    return {};
  table.strings = exactly(at(p.strings - bias), 0, p.strings_size);
  if (table.strings.empty() || table.strings.front() != std::byte{0} || table.strings.back() != std::byte{0}) return {};
  if (p.gnu_hash != 0) table.gnu_hash = at(p.gnu_hash - bias);
  if (p.sysv_hash != 0) table.sysv_hash = at(p.sysv_hash - bias);
  if (counts_left-- <= 0) return {};
  const std::size_t count = count_symbols(table, hash_words_left);
  table.symbols = exactly(symbols, 0, std::uint64_t{count} * sizeof(Elf64_Sym));
  for (std::size_t i = 1; i < std::min<std::size_t>(table.size(), 16); ++i) {
    if (table.at(i).st_name >= table.strings.size()) return {};
  }
  return table.symbols.empty() ? SymbolTable{} : table;
}

}  // namespace

SymbolTable find_dynamic_symbols(std::span<const std::byte> dynamic, const VaddrView& at, Vaddr low, Vaddr high) {
  const Pointers p = read_pointers(dynamic);
  if (p.symbols == 0 || p.strings == 0 || p.strings_size == 0 || (p.gnu_hash == 0 && p.sysv_hash == 0) || low >= high)
    return {};
  // In a file, in the vdso and under musl these pointers are in the file's own address space. glibc adds the load bias
  // to them in the memory of a running process (elf/get-dynamic-info.h), and a copy of that memory does not state the
  // bias: it is the multiple of the page size for which the pointers fit.
  int counts_left = kMaxCounts;
  std::uint64_t hash_words_left = kMaxHashWords;
  if (p.symbols >= low && p.symbols < high) {
    SymbolTable table = table_at(p, at, 0, counts_left, hash_words_left);
    if (!table.symbols.empty()) return table;
  }
  const std::uint64_t lowest = std::min(p.symbols, p.strings);
  const std::uint64_t highest = std::max(p.symbols, p.strings);
  if (highest - lowest >= high - low || lowest < low) return {};
  std::uint64_t bias = (lowest - low) & ~(kPage - 1);
  for (int i = 0; i < kMaxBiases && bias != 0 && highest - bias < high; ++i, bias -= kPage) {
    SymbolTable table = table_at(p, at, bias, counts_left, hash_words_left);
    if (!table.symbols.empty()) return table;
  }
  return {};
}

}  // namespace rankstacks::elf
