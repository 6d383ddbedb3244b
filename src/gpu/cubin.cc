#include "gpu/cubin.h"

#include <elf.h>
#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cstring>

#include "elf/bytes.h"
#include "elf/symbol_table.h"

namespace rankstacks::gpu {
namespace {

using Bytes = std::span<const std::byte>;

constexpr unsigned char kEntryFlag = 0x10;  // st_other of a kernel that the host launches
constexpr std::string_view kCodePrefix = ".text.";
// Bound on the addresses that all symbols together cover: real files have one or two symbols for each address.
constexpr std::uint64_t kMaxOverlaps = 4u << 20;

struct Sections {
  Bytes file;
  Bytes headers;  // Elf64_Shdr each
  Bytes names;

  std::size_t size() const { return headers.size() / sizeof(Elf64_Shdr); }
  Elf64_Shdr at(std::size_t index) const {
    Elf64_Shdr header;
    std::memcpy(&header, headers.data() + index * sizeof header, sizeof header);
    return header;
  }
  Bytes contents(const Elf64_Shdr& header) const {
    return header.sh_type == SHT_NOBITS ? Bytes{} : elf::clip(file, header.sh_offset, header.sh_size);
  }
  std::string_view name(const Elf64_Shdr& header) const {
    const Bytes rest = elf::clip(names, header.sh_name, names.size());
    const auto* text = reinterpret_cast<const char*>(rest.data());
    return rest.empty() ? std::string_view{} : std::string_view(text, strnlen(text, rest.size()));
  }
};

tl::unexpected<Error> broken(std::string what, std::optional<std::uint64_t> where = {},
                             ErrorCode code = ErrorCode::kMalformed) {
  return fail({.code = code, .subject = "cubin", .what = std::move(what), .where = where});
}

Result<Sections> parse(Bytes file) {
  const auto header = elf::load<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return broken("no ELF file");
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
      header->e_machine != EM_CUDA) {
    return broken(fmt::format("an ELF file of machine {} where {} (CUDA) is expected", header->e_machine, EM_CUDA),
                  offsetof(Elf64_Ehdr, e_machine), ErrorCode::kUnsupported);
  }
  if (header->e_shoff == 0) return broken("it has no sections", offsetof(Elf64_Ehdr, e_shoff));
  if (header->e_shentsize != sizeof(Elf64_Shdr)) {
    return broken(
        fmt::format("section headers of {} bytes where {} are expected", header->e_shentsize, sizeof(Elf64_Shdr)),
        offsetof(Elf64_Ehdr, e_shentsize));
  }
  const auto first = elf::load<Elf64_Shdr>(file, header->e_shoff);
  if (!first) return broken("the section headers lie outside the file", header->e_shoff);
  const std::uint64_t held = (file.size() - header->e_shoff) / sizeof(Elf64_Shdr);
  const std::uint64_t count = header->e_shnum != 0 ? header->e_shnum : first->sh_size;
  if (count > held)
    return broken(fmt::format("{} of {} section headers are missing", count - held, count), header->e_shoff);
  Sections sections{file, file.subspan(header->e_shoff, count * sizeof(Elf64_Shdr)), {}};
  const std::uint64_t names = header->e_shstrndx == SHN_XINDEX ? first->sh_link : header->e_shstrndx;
  if (names < sections.size()) sections.names = sections.contents(sections.at(names));
  return sections;
}

bool is_loaded_code(const Elf64_Shdr& header) {
  return header.sh_type == SHT_PROGBITS && (header.sh_flags & SHF_EXECINSTR) != 0 && header.sh_addr != 0 &&
         header.sh_size != 0 && header.sh_size <= ~std::uint64_t{0} - header.sh_addr;
}

elf::SymbolTable symbol_table(const Sections& sections) {
  elf::SymbolTable table;
  std::size_t at = 0;
  for (; at < sections.size(); ++at) {
    const Elf64_Shdr header = sections.at(at);
    if (header.sh_type != SHT_SYMTAB) continue;
    table.symbols = sections.contents(header);
    if (header.sh_link < sections.size()) table.strings = sections.contents(sections.at(header.sh_link));
    break;
  }
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const Elf64_Shdr header = sections.at(i);
    if (header.sh_type == SHT_SYMTAB_SHNDX && header.sh_link == at) table.section_indices = sections.contents(header);
  }
  return table;
}

// Where a function's code is on the GPU; empty if it is not loaded.
Range loaded_range(const Elf64_Sym& symbol, const Elf64_Shdr& section) {
  if (!is_loaded_code(section) || symbol.st_size == 0) return {};
  // The value is absolute in a relocated file. For a function that was loaded later only its section was updated: its
  // symbol still counts from the section's start.
  const std::uint64_t absolute = symbol.st_value - section.sh_addr;
  const std::uint64_t offset = absolute < section.sh_size ? absolute : symbol.st_value;
  if (offset >= section.sh_size || symbol.st_size > section.sh_size - offset) return {};
  return {section.sh_addr + offset, section.sh_addr + offset + symbol.st_size};
}

// "__nv_static_32__b4148644_10_onerank_cu_fdf47990__Z3foov" (NCCL): an internal name, "_Z3foov", behind the 32
// characters that make it unique.
std::string_view without_static_prefix(std::string_view symbol) {
  constexpr std::string_view kPrefix = "__nv_static_";
  if (!symbol.starts_with(kPrefix)) return symbol;
  std::size_t length = 0;
  const char* end = symbol.data() + symbol.size();
  const auto [digits_end, error] = std::from_chars(symbol.data() + kPrefix.size(), end, length);
  const std::string_view rest(digits_end, static_cast<std::size_t>(end - digits_end));
  if (error != std::errc() || !rest.starts_with("__") || length >= rest.size() - 2) return symbol;
  return rest.substr(2 + length);
}

// "$KERNEL$function" in section .text.KERNEL: "function".
std::string_view own_name(std::string_view symbol, std::string_view section) {
  symbol = without_static_prefix(symbol);
  if (!symbol.starts_with('$') || !section.starts_with(kCodePrefix)) return symbol;
  const std::string_view kernel = section.substr(kCodePrefix.size());
  const std::string_view rest = symbol.substr(1);
  if (rest.size() <= kernel.size() + 1 || !rest.starts_with(kernel) || rest[kernel.size()] != '$') return symbol;
  return rest.substr(kernel.size() + 1);
}

struct Best {
  Range range{};
  std::uint32_t section = 0;
  std::size_t symbol = 0;
  bool is_global = false;
};

// Whether `a` is the inner of two functions that cover an address; of two names for the same code, whether it is the
// global one.
bool is_inner(const Best& a, const Best& b) {
  if (b.range.end == 0) return true;
  if (a.range.start != b.range.start) return a.range.start > b.range.start;
  if (a.range.end != b.range.end) return a.range.end < b.range.end;
  return a.is_global && !b.is_global;
}

}  // namespace

Result<std::vector<std::optional<CubinPlace>>> find_functions(Bytes cubin, std::span<const Address> addresses) {
  const auto sections = parse(cubin);
  if (!sections) return fail(sections.error());
  const elf::SymbolTable table = symbol_table(*sections);
  std::vector<Best> functions(addresses.size()), kernels(addresses.size());
  std::uint64_t overlaps = 0;
  for (std::size_t i = 0; i < table.size() && overlaps < kMaxOverlaps; ++i) {
    const Elf64_Sym symbol = table.at(i);
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
    const auto section = table.section_of(i, symbol);
    if (!section || *section >= sections->size()) continue;
    const Range range = loaded_range(symbol, sections->at(*section));
    if (range.end == 0) continue;
    const Best best{range, *section, i, ELF64_ST_BIND(symbol.st_info) != STB_LOCAL};
    const auto first = std::lower_bound(addresses.begin(), addresses.end(), range.start);
    for (auto a = first; a != addresses.end() && *a < range.end && overlaps < kMaxOverlaps; ++a, ++overlaps) {
      const auto at = static_cast<std::size_t>(a - addresses.begin());
      if (is_inner(best, functions[at])) functions[at] = best;
      if ((symbol.st_other & kEntryFlag) != 0 && is_inner(best, kernels[at])) kernels[at] = best;
    }
  }
  const auto shown = [&](const Best& best) -> std::optional<CubinFunction> {
    if (best.range.end == 0) return std::nullopt;
    const std::string_view name =
        own_name(table.name(table.at(best.symbol)), sections->name(sections->at(best.section)));
    if (name.empty()) return std::nullopt;
    return CubinFunction{name, best.range.start};
  };
  std::vector<std::optional<CubinPlace>> places(addresses.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (const auto function = shown(functions[i])) places[i] = CubinPlace{*function, shown(kernels[i])};
  }
  return places;
}

bool has_code_at(Bytes cubin, std::span<const Address> addresses) {
  const auto sections = parse(cubin);
  if (!sections) return false;
  for (std::size_t i = 0; i < sections->size(); ++i) {
    const Elf64_Shdr header = sections->at(i);
    if (!is_loaded_code(header)) continue;
    const auto first = std::lower_bound(addresses.begin(), addresses.end(), header.sh_addr);
    if (first != addresses.end() && *first - header.sh_addr < header.sh_size) return true;
  }
  return false;
}

}  // namespace rankstacks::gpu
