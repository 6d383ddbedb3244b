#include "elf/symbol_table.h"

#include <algorithm>
#include <bit>

#include "elf/bytes.h"

namespace rankstacks::elf {
namespace {

// The length of the longest demangled name. Many symbols may all have the rest of a large string table as their name.
constexpr std::size_t kLongestName = 64 << 10;
// Linkers make as many buckets as symbols, or a fourth of that, so a longer chain was made to waste time. The vdso,
// with one bucket or three, has about twenty symbols.
constexpr std::size_t kLongestChain = 4096;
// Without a hash table each symbol is compared: 50 times as many as the largest library has.
constexpr std::size_t kMaxLookedAt = std::size_t{1} << 25;

std::uint32_t gnu_hash_of(std::string_view name) {
  std::uint32_t h = 5381;
  for (const char c : name) h = h * 33 + static_cast<unsigned char>(c);
  return h;
}

std::uint32_t sysv_hash_of(std::string_view name) {
  std::uint32_t h = 0;
  for (const char c : name) {
    h = (h << 4) + static_cast<unsigned char>(c);
    const std::uint32_t top = h & 0xf0000000U;
    h = (h ^ (top >> 24)) & ~top;
  }
  return h;
}

// .gnu.hash: u32 nbuckets, first hashed symbol, bloom words, bloom shift; u64 bloom[]; u32 buckets[]; u32 chain[], one
// for each hashed symbol, its lowest bit set at the end of a bucket.
// https://sourceware.org/legacy-ml/binutils/2006-10/msg00377.html
struct GnuHash {
  std::uint32_t buckets = 0;
  std::uint32_t first_symbol = 0;
  std::uint32_t bloom_words = 0, bloom_shift = 0;
  std::uint64_t buckets_at = 0;
  std::uint64_t chain_at = 0;
};

constexpr std::uint64_t kBloomAt = 16;

std::optional<GnuHash> parse_gnu_hash(std::span<const std::byte> bytes) {
  const auto buckets = load<std::uint32_t>(bytes, 0);
  const auto first = load<std::uint32_t>(bytes, 4);
  const auto bloom = load<std::uint32_t>(bytes, 8);
  const auto shift = load<std::uint32_t>(bytes, 12);
  if (!buckets || !first || !bloom || !shift || *buckets == 0) return std::nullopt;
  GnuHash hash;
  hash.buckets = *buckets;
  hash.first_symbol = *first;
  hash.bloom_words = *bloom;
  hash.bloom_shift = *shift;
  hash.buckets_at = kBloomAt + std::uint64_t{*bloom} * 8;
  hash.chain_at = hash.buckets_at + std::uint64_t{*buckets} * 4;
  if (hash.chain_at > bytes.size()) return std::nullopt;
  return hash;
}

// Whether the table may have a name with this hash, as the loader asks first: a library that does not have the name is
// nearly always left out by this one word.
bool may_have(std::span<const std::byte> bytes, const GnuHash& hash, std::uint32_t h) {
  constexpr std::uint32_t kBits = 64;
  if (!std::has_single_bit(hash.bloom_words)) return true;
  const std::uint64_t index = (h / kBits) & (hash.bloom_words - 1);
  const std::uint64_t word = load<std::uint64_t>(bytes, kBloomAt + index * 8).value_or(0);
  const std::uint32_t second = hash.bloom_shift < 32 ? h >> hash.bloom_shift : 0;
  return (word >> (h % kBits) & word >> (second % kBits) & 1U) != 0;
}

std::optional<Symbol> defined(const SymbolTable& table, std::uint64_t index, std::string_view wanted) {
  if (index >= table.size()) return std::nullopt;
  const Elf64_Sym symbol = table.at(index);
  if (symbol.st_shndx == SHN_UNDEF || !table.is_named(symbol, wanted)) return std::nullopt;
  const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
  if (type == STT_SECTION || type == STT_FILE) return std::nullopt;
  return Symbol{table.name(symbol), symbol.st_value, symbol.st_size, type,
                static_cast<unsigned char>(ELF64_ST_BIND(symbol.st_info))};
}

}  // namespace

std::string_view SymbolTable::name(const Elf64_Sym& symbol) const {
  if (symbol.st_name >= strings.size()) return {};
  const char* start = reinterpret_cast<const char*>(strings.data()) + symbol.st_name;
  const auto* end = static_cast<const char*>(
      std::memchr(start, 0, std::min<std::size_t>(strings.size() - symbol.st_name, kLongestName)));
  return end == nullptr ? std::string_view{} : std::string_view(start, static_cast<std::size_t>(end - start));
}

bool SymbolTable::is_named(const Elf64_Sym& symbol, std::string_view wanted) const {
  if (symbol.st_name >= strings.size() || strings.size() - symbol.st_name <= wanted.size()) return false;
  const char* start = reinterpret_cast<const char*>(strings.data()) + symbol.st_name;
  return std::memcmp(start, wanted.data(), wanted.size()) == 0 && start[wanted.size()] == '\0';
}

std::optional<std::uint32_t> SymbolTable::section_of(std::size_t index, const Elf64_Sym& symbol) const {
  if (symbol.st_shndx == SHN_XINDEX) return load<std::uint32_t>(section_indices, std::uint64_t{index} * 4);
  if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= SHN_LORESERVE) return std::nullopt;
  return symbol.st_shndx;
}

std::optional<Symbol> SymbolTable::find(std::string_view wanted) const {
  if (wanted.empty()) return std::nullopt;
  if (const auto hash = parse_gnu_hash(gnu_hash)) {
    const std::uint32_t h = gnu_hash_of(wanted);
    if (!may_have(gnu_hash, *hash, h)) return std::nullopt;
    std::uint64_t index =
        load<std::uint32_t>(gnu_hash, hash->buckets_at + std::uint64_t{h % hash->buckets} * 4).value_or(0);
    if (index < hash->first_symbol) return std::nullopt;
    for (std::size_t steps = 0; index < size() && steps < kLongestChain; ++index, ++steps) {
      const auto link = load<std::uint32_t>(gnu_hash, hash->chain_at + (index - hash->first_symbol) * 4);
      if (!link) return std::nullopt;
      if ((*link | 1U) == (h | 1U)) {
        if (auto found = defined(*this, index, wanted)) return found;
      }
      if ((*link & 1U) != 0) return std::nullopt;
    }
    return std::nullopt;
  }
  const auto buckets = load<std::uint32_t>(sysv_hash, 0);
  const auto chains = load<std::uint32_t>(sysv_hash, 4);
  if (buckets && chains && *buckets != 0) {
    std::uint64_t index =
        load<std::uint32_t>(sysv_hash, 8 + std::uint64_t{sysv_hash_of(wanted) % *buckets} * 4).value_or(0);
    // A chain in a broken file can be a cycle: no chain is longer than the table.
    for (std::size_t steps = 0; index != 0 && steps <= std::min(size(), kLongestChain); ++steps) {
      if (auto found = defined(*this, index, wanted)) return found;
      index = load<std::uint32_t>(sysv_hash, 8 + (std::uint64_t{*buckets} + index) * 4).value_or(0);
    }
    return std::nullopt;
  }
  for (std::size_t i = 1; i < std::min(size(), kMaxLookedAt); ++i) {
    if (auto found = defined(*this, i, wanted)) return found;
  }
  return std::nullopt;
}

bool SymbolTable::has_undefined(std::string_view wanted) const {
  const auto hash = parse_gnu_hash(gnu_hash);  // it has the defined symbols, which follow the others
  const std::size_t end = hash ? std::min<std::size_t>(size(), hash->first_symbol) : size();
  for (std::size_t i = 1; i < std::min(end, kMaxLookedAt); ++i)
    if (const Elf64_Sym symbol = at(i); symbol.st_shndx == SHN_UNDEF && is_named(symbol, wanted)) return true;
  return false;
}

std::size_t count_symbols(const SymbolTable& table, std::uint64_t& words_left) {
  const auto take_words = [&](std::uint64_t n) {
    const bool there = n <= words_left;
    words_left -= std::min(n, words_left);
    return there;
  };
  if (const auto hash = parse_gnu_hash(table.gnu_hash)) {
    if (!take_words(hash->buckets)) return 0;
    std::uint64_t last = 0;
    for (std::uint64_t i = 0; i < hash->buckets; ++i) {
      last = std::max<std::uint64_t>(last, load<std::uint32_t>(table.gnu_hash, hash->buckets_at + i * 4).value_or(0));
    }
    if (last < hash->first_symbol) return hash->first_symbol;  // nothing is hashed: there are only undefined symbols
    while (take_words(1)) {
      const auto link = load<std::uint32_t>(table.gnu_hash, hash->chain_at + (last - hash->first_symbol) * 4);
      if (!link) return 0;
      ++last;
      if ((*link & 1U) != 0) return last;
    }
    return 0;
  }
  return load<std::uint32_t>(table.sysv_hash, 4).value_or(0);  // nchain: one entry for each symbol
}

}  // namespace rankstacks::elf
