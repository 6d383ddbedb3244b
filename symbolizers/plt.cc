#include "symbolizers/plt.h"

#include <unordered_map>
#include <utility>

#include "elf/bytes.h"

namespace rankstacks::symbolizers {
namespace {

// A file has one of each of the four kinds.
constexpr std::size_t kMaxTables = 16;

struct Entry {
  std::optional<Vaddr> slot;            // the GOT slot it jumps through
  std::optional<std::uint32_t> number;  // or: the number that it pushes, an index into .rela.plt
};

bool is_plt(const elf::Section& section) {
  return section.header.sh_type == SHT_PROGBITS && (section.name == ".plt" || section.name == ".plt.sec" ||
                                                    section.name == ".plt.got" || section.name == ".plt.bnd");
}

// Entries as GNU ld, gold, lld and mold write them for x86-64 (binutils bfd/elf64-x86-64.c, elfxx-x86.c):
//   .plt            ff 25 REL32  jmp *slot(%rip); 68 IMM32 push n; e9 REL32 jmp .plt      16 bytes
//   .plt with IBT   f3 0f 1e fa endbr64; 68 IMM32 push n; [f2] e9 REL32 jmp .plt          16
//   .plt.sec        f3 0f 1e fa endbr64; [f2] ff 25 REL32                                 16
//   .plt.got        [f3 0f 1e fa] [f2] ff 25 REL32                                        8 or 16
// The first entry of .plt (ff 35 push; ff 25 jmp) belongs to no symbol.
Entry decode(std::span<const std::byte> code, Vaddr address) {
  const auto byte_at = [&](std::uint64_t i) { return elf::load<std::uint8_t>(code, i).value_or(0); };
  std::uint64_t at = elf::load<std::uint32_t>(code, 0) == 0xfa1e0ff3U ? 4 : 0;
  if (byte_at(at) == 0x68) return {.slot = {}, .number = elf::load<std::uint32_t>(code, at + 1)};
  if (byte_at(at) == 0xf2) ++at;
  if (byte_at(at) != 0xff || byte_at(at + 1) != 0x25) return {};
  const auto relative = elf::load<std::int32_t>(code, at + 2);
  if (!relative) return {};
  return {.slot = address + at + 6 + static_cast<std::uint64_t>(std::int64_t{*relative}), .number = {}};
}

std::string_view name_of(const elf::SymbolTable& symbols, const Elf64_Rela& relocation) {
  const std::uint64_t index = ELF64_R_SYM(relocation.r_info);
  const auto type = ELF64_R_TYPE(relocation.r_info);
  if (index == 0 || index >= symbols.size() || (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT)) return {};
  return symbols.name(symbols.at(index));
}

}  // namespace

std::vector<std::optional<std::string_view>> name_plt_entries(const elf::Image& image,
                                                              std::span<const Vaddr> addresses) {
  std::vector<std::optional<std::string_view>> names(addresses.size());
  std::unordered_map<Vaddr, std::vector<std::size_t>> wanted_slots;  // the addresses that jump through each
  std::vector<std::pair<std::uint32_t, std::size_t>> wanted_numbers;
  std::size_t tables = 0;
  for (const elf::Section& section : image.sections()) {
    if (!is_plt(section)) continue;
    if (++tables > kMaxTables) break;
    const Elf64_Shdr& h = section.header;
    const auto code = image.contents(section);
    const std::uint64_t entry_size = h.sh_entsize == 8 || h.sh_entsize == 16 ? h.sh_entsize : 16;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (addresses[i] < h.sh_addr || addresses[i] - h.sh_addr >= h.sh_size) continue;
      const std::uint64_t offset = (addresses[i] - h.sh_addr) / entry_size * entry_size;
      const Entry entry = decode(elf::clip(code, offset, entry_size), h.sh_addr + offset);
      if (entry.slot) wanted_slots[*entry.slot].push_back(i);
      if (entry.number) wanted_numbers.emplace_back(*entry.number, i);
    }
  }
  if (wanted_slots.empty() && wanted_numbers.empty()) return names;

  const elf::SymbolTable& symbols = image.dynamic_symbols();
  const auto give = [&](const Elf64_Rela& relocation, std::span<const std::size_t> to) {
    const auto name = name_of(symbols, relocation);
    if (name.empty()) return false;
    for (const std::size_t address : to) names[address] = name;
    return true;
  };
  // In a sound file no byte is in two tables: together they are no longer than the file.
  std::uint64_t bytes_left = image.bytes().size();
  for (const elf::Section& section : image.sections()) {
    if (section.header.sh_type != SHT_RELA) continue;
    const auto relocations = elf::clip(image.contents(section), 0, bytes_left);
    bytes_left -= relocations.size();
    if (section.name == ".rela.plt") {
      for (const auto& [number, address] : std::exchange(wanted_numbers, {})) {
        if (const auto relocation = elf::load<Elf64_Rela>(relocations, std::uint64_t{number} * sizeof(Elf64_Rela)))
          give(*relocation, {&address, 1});
      }
    }
    for (std::uint64_t at = 0; !wanted_slots.empty(); at += sizeof(Elf64_Rela)) {
      const auto relocation = elf::load<Elf64_Rela>(relocations, at);
      if (!relocation) break;
      const auto type = ELF64_R_TYPE(relocation->r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
      const auto slot = wanted_slots.find(relocation->r_offset);
      if (slot != wanted_slots.end() && give(*relocation, slot->second)) wanted_slots.erase(slot);
    }
  }
  return names;
}

}  // namespace rankstacks::symbolizers
