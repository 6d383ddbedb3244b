// Writes GPU cores and cubins byte by byte. They are sound; a test then breaks one place.
//
//     ELF header | tables and images ... | .strtab | section headers          as drivers write them
#pragma once

#include <elf.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/core_layout.h"
#include "support/elf_writer.h"

namespace rankstacks::testing {

struct CubinSection {
  std::string name;
  Elf64_Shdr header{};
  Bytes bytes;
};

inline Bytes write_sections(Elf64_Ehdr header, std::vector<CubinSection> sections,
                            const std::function<void(Elf64_Ehdr&)>& change_header,
                            const std::function<void(std::vector<CubinSection>&)>& change_sections) {
  std::string names(1, '\0');
  sections.push_back({".shstrtab", {.sh_type = SHT_STRTAB}, {}});
  for (CubinSection& s : sections) {
    s.header.sh_name = static_cast<Elf64_Word>(names.size());
    names += s.name + '\0';
  }
  append(sections.back().bytes, std::string_view(names));
  std::uint64_t at = sizeof header;
  for (CubinSection& s : sections) {
    s.header.sh_offset = at;
    s.header.sh_size = s.header.sh_size != 0 ? s.header.sh_size : s.bytes.size();
    at += s.bytes.size();
  }
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_machine = EM_CUDA;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shoff = at;
  // Section 0 is not a section; it has what does not fit into the header.
  Elf64_Shdr first{};
  const std::size_t count = sections.size() + 1;
  header.e_shnum = count < SHN_LORESERVE ? static_cast<Elf64_Half>(count) : Elf64_Half{0};
  header.e_shstrndx = count < SHN_LORESERVE ? static_cast<Elf64_Half>(count - 1) : Elf64_Half{SHN_XINDEX};
  if (count >= SHN_LORESERVE) {
    first.sh_size = count;
    first.sh_link = static_cast<Elf64_Word>(count - 1);
  }
  if (change_header) change_header(header);
  if (change_sections) change_sections(sections);
  Bytes file = bytes_of(header);
  for (const CubinSection& s : sections) append(file, s.bytes);
  append_value(file, first);
  for (const CubinSection& s : sections) append_value(file, s.header);
  return file;
}

// One loaded module. Each function has a section of its own, or is inside the section of its kernel.
class CubinWriter {
 public:
  struct Function {
    std::string symbol;
    std::uint64_t offset = 0, size = 0;  // in its section
    bool entry = false, global = true;
  };
  struct Code {
    std::string name;                     // of the section, without ".text."
    std::uint64_t address = 0, size = 0;  // address 0: not loaded
    std::vector<Function> functions;
    bool relative = false;  // its symbols count from its start although it is loaded
  };
  std::vector<Code> code;
  std::size_t padding_sections =
      0;  // empty ones in front: above 65,279 the symbols' sections are in a table of their own
  std::function<void(Elf64_Ehdr&)> change_header;
  std::function<void(std::vector<CubinSection>&)> change_sections;  // without section 0

  Bytes write() const {
    std::vector<CubinSection> sections(padding_sections, CubinSection{".nv.info", {.sh_type = SHT_LOPROC}, {}});
    std::string strings(1, '\0');
    Bytes symbols = bytes_of(Elf64_Sym{}), indices = bytes_of(std::uint32_t{0});
    for (const Code& c : code) {
      sections.push_back(
          {".text." + c.name,
           {.sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR, .sh_addr = c.address, .sh_size = c.size},
           {}});
      const std::size_t index = sections.size();
      for (const Function& f : c.functions) {
        Elf64_Sym symbol{};
        symbol.st_name = static_cast<Elf64_Word>(strings.size());
        symbol.st_info = ELF64_ST_INFO(f.global ? STB_GLOBAL : STB_LOCAL, STT_FUNC);
        symbol.st_other = f.entry ? 0x10 : 0;
        symbol.st_shndx = index < SHN_LORESERVE ? static_cast<Elf64_Section>(index) : Elf64_Section{SHN_XINDEX};
        symbol.st_value = f.offset + (c.address != 0 && !c.relative ? c.address : 0);
        symbol.st_size = f.size;
        strings += f.symbol + '\0';
        append_value(symbols, symbol);
        append_value(indices, static_cast<std::uint32_t>(index < SHN_LORESERVE ? 0 : index));
      }
    }
    const auto symtab = static_cast<Elf64_Word>(sections.size() + 1);
    sections.push_back(
        {".symtab", {.sh_type = SHT_SYMTAB, .sh_link = symtab + 1, .sh_entsize = sizeof(Elf64_Sym)}, symbols});
    sections.push_back({".strtab", {.sh_type = SHT_STRTAB}, {}});
    append(sections.back().bytes, std::string_view(strings));
    if (symtab >= SHN_LORESERVE)
      sections.push_back({".symtab_shndx", {.sh_type = SHT_SYMTAB_SHNDX, .sh_link = symtab, .sh_entsize = 4}, indices});
    return write_sections({.e_type = ET_EXEC}, std::move(sections), change_header, change_sections);
  }
};

// A row of a table, filled in with the members of core_layout.h.
class RowWriter {
 public:
  explicit RowWriter(std::uint64_t size) : bytes_(size) {}
  template <class T>
  RowWriter& set(gpu::core::Member<T> member, T value) {
    if (member.offset + sizeof value <= bytes_.size()) std::memcpy(bytes_.data() + member.offset, &value, sizeof value);
    return *this;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

struct GpuThread {
  std::uint32_t lane = 0;
  std::uint64_t pc = 0;
  std::uint32_t x = 0, exception = 0;
  std::vector<std::uint64_t> returns{};
};
struct GpuWarp {
  std::uint32_t id = 0;
  std::uint32_t valid = 0, active = 0;
  std::optional<std::uint64_t> error_pc{};
  std::vector<GpuThread> threads{};
};
struct GpuBlock {
  std::uint64_t grid = 0;
  std::uint32_t x = 0;
  std::vector<GpuWarp> warps{};
};
struct GpuSm {
  std::uint32_t id = 0;
  std::uint32_t exception = 0;
  std::optional<std::uint64_t> error_pc{};
  std::vector<GpuBlock> blocks{};
};
struct GpuGrid {
  std::uint64_t id = 0, context = 0, module = 0, entry = 0;
  std::uint32_t grid_x = 1, block_x = 32;
};
struct GpuModule {
  std::uint64_t handle = 0;
  Bytes image{};
};
struct GpuContext {
  std::uint64_t id = 0;
  std::uint32_t tid = 0;
  std::vector<GpuModule> modules{};
};
struct GpuDevice {
  std::string name = "NVIDIA Test";
  std::uint32_t id = 0, bus = 0, slot = 6, status = 0;
  std::vector<GpuContext> contexts{};
  std::vector<GpuGrid> grids{};
  std::vector<GpuSm> sms{};
};

// Rows of the lengths that drivers write: R525's, and R580's, whose additional members are zeros.
struct RowSizes {
  std::uint64_t device, context = 40, module = 8, grid, sm, block, warp, thread, returns = 24, meta = 32;
};
inline constexpr RowSizes kRowsR525{.device = 80, .grid = 120, .sm = 8, .block = 40, .warp = 40, .thread = 56};
inline constexpr RowSizes kRowsR580{.device = 88, .grid = 136, .sm = 48, .block = 56, .warp = 64, .thread = 64};

class GpuCoreWriter {
 public:
  std::vector<GpuDevice> devices;
  RowSizes rows = kRowsR580;
  std::optional<std::uint32_t> written;  // with it the core has meta data: driver 580.159
  std::function<void(Elf64_Ehdr&)> change_header;
  std::function<void(std::vector<CubinSection>&)> change_sections;  // without section 0

  Bytes write() const {
    using namespace gpu::core;
    std::vector<CubinSection> sections;
    std::string strings(1, '\0');
    const auto add = [&](const char* name, SectionType type, std::uint64_t row_size, std::size_t parent,
                         std::size_t row) {
      sections.push_back({name,
                          {.sh_type = type,
                           .sh_flags = SHF_ALLOC,
                           .sh_link = static_cast<Elf64_Word>(parent),
                           .sh_info = static_cast<Elf64_Word>(row),
                           .sh_entsize = row_size},
                          {}});
      return sections.size();  // its number: section 0 comes in front
    };
    const auto put = [&](std::size_t section, const RowWriter& row) {
      append(sections[section - 1].bytes, row.bytes());
    };
    const std::size_t table = add(".cudbg.devtbl", kDevices, rows.device, 0, 0);
    for (std::size_t d = 0; d < devices.size(); ++d) {
      const GpuDevice& device = devices[d];
      put(table, RowWriter(rows.device)
                     .set(device::kName, std::uint64_t{strings.size()})
                     .set(device::kId, device.id)
                     .set(device::kPciBus, device.bus)
                     .set(device::kPciDevice, device.slot)
                     .set(device::kInstructionSize, 16u)
                     .set(device::kStatus, device.status));
      strings += device.name + '\0';
      const std::size_t contexts = add(".cudbg.ctxtbl", kContexts, rows.context, table, d);
      for (std::size_t c = 0; c < device.contexts.size(); ++c) {
        const GpuContext& context = device.contexts[c];
        put(contexts, RowWriter(rows.context).set(context::kId, context.id).set(context::kTid, context.tid));
        const std::size_t modules = add(".cudbg.modtbl", kModules, rows.module, contexts, c);
        for (std::size_t m = 0; m < context.modules.size(); ++m) {
          put(modules, RowWriter(rows.module).set(module::kHandle, context.modules[m].handle));
          if (!context.modules[m].image.empty())
            sections[add(".cudbg.relfimg", kRelocatedImage, 0, modules, m) - 1].bytes = context.modules[m].image;
        }
      }
      const std::size_t grids = add(".cudbg.gridtbl", kGrids, rows.grid, table, d);
      for (const GpuGrid& g : device.grids) {
        put(grids, RowWriter(rows.grid)
                       .set(grid::kId, g.id)
                       .set(grid::kContext, g.context)
                       .set(grid::kModule, g.module)
                       .set(grid::kEntry, g.entry)
                       .set(grid::kGridX, g.grid_x)
                       .set(grid::kGridY, 1u)
                       .set(grid::kGridZ, 1u)
                       .set(grid::kBlockX, g.block_x)
                       .set(grid::kBlockY, 1u)
                       .set(grid::kBlockZ, 1u));
      }
      const std::size_t sms = add(".cudbg.smtbl", kSms, rows.sm, table, d);
      for (std::size_t s = 0; s < device.sms.size(); ++s) {
        const GpuSm& sm = device.sms[s];
        put(sms, RowWriter(rows.sm)
                     .set(sm::kId, sm.id)
                     .set(sm::kException, sm.exception)
                     .set(sm::kErrorPcValid, std::uint32_t{sm.error_pc.has_value()})
                     .set(sm::kErrorPc, sm.error_pc.value_or(0)));
        const std::size_t blocks = add(".cudbg.ctatbl", kBlocks, rows.block, sms, s);
        for (std::size_t b = 0; b < sm.blocks.size(); ++b) {
          put(blocks, RowWriter(rows.block).set(block::kGrid, sm.blocks[b].grid).set(block::kX, sm.blocks[b].x));
          const std::size_t warps = add(".cudbg.wptbl", kWarps, rows.warp, blocks, b);
          for (std::size_t w = 0; w < sm.blocks[b].warps.size(); ++w) {
            const GpuWarp& warp = sm.blocks[b].warps[w];
            put(warps, RowWriter(rows.warp)
                           .set(warp::kErrorPc, warp.error_pc.value_or(0))
                           .set(warp::kId, warp.id)
                           .set(warp::kValidLanes, warp.valid)
                           .set(warp::kActiveLanes, warp.active)
                           .set(warp::kErrorPcValid, std::uint32_t{warp.error_pc.has_value()}));
            const std::size_t threads = add(".cudbg.lntbl", kThreads, rows.thread, warps, w);
            for (std::size_t t = 0; t < warp.threads.size(); ++t) {
              const GpuThread& thread = warp.threads[t];
              put(threads, RowWriter(rows.thread)
                               .set(thread::kPc, thread.pc)
                               .set(thread::kLane, thread.lane)
                               .set(thread::kX, thread.x)
                               .set(thread::kException, thread.exception));
              const std::size_t stack = add(".cudbg.bt", kReturns, rows.returns, threads, t);
              for (std::size_t r = 0; r < thread.returns.size(); ++r) {
                put(stack, RowWriter(rows.returns)
                               .set(returns::kAddress, thread.returns[r])
                               .set(returns::kLevel, static_cast<std::uint32_t>(r)));
              }
            }
          }
        }
      }
    }
    if (written) {
      put(add(".cudbg.meta", kMetaData, 0, 0, 0),
          RowWriter(rows.meta).set(meta::kDriverMajor, 580u).set(meta::kDriverMinor, 159u).set(meta::kTime, *written));
    }
    sections.push_back({".strtab", {.sh_type = SHT_STRTAB}, {}});
    append(sections.back().bytes, std::string_view(strings));
    Elf64_Ehdr header{};
    header.e_ident[EI_OSABI] = 0x33;
    header.e_type = ET_CORE;
    return write_sections(header, std::move(sections), change_header, change_sections);
  }
};

// A warp of 32 threads, all at one pc, beginning with thread `first` of its block.
inline GpuWarp whole_warp(std::uint32_t id, std::uint64_t pc, std::vector<std::uint64_t> returns = {},
                          std::uint32_t first = 0) {
  GpuWarp warp{.id = id, .valid = ~0u, .active = ~0u};
  for (std::uint32_t lane = 0; lane < 32; ++lane) warp.threads.push_back({lane, pc, first + lane, 0, returns});
  return warp;
}

// A kernel "spin(int*)" at 0x7000'0000, with "inner(int)" inside of it, of which two blocks of one warp are two calls
// deep.
inline constexpr std::uint64_t kSpinCode = 0x7000'0000;
inline CubinWriter spin_cubin() {
  CubinWriter cubin;
  cubin.code = {{"_Z4spinPi",
                 kSpinCode,
                 0x400,
                 {{"_Z4spinPi", 0, 0x400, true}, {"$_Z4spinPi$_Z5inneri", 0x100, 0x80, false, false}}}};
  return cubin;
}
inline GpuCoreWriter spin_core() {
  GpuCoreWriter core;
  GpuDevice device;
  device.contexts = {{0xc0, 4711, {{0xa0, spin_cubin().write()}}}};
  device.grids = {{.id = 9, .context = 0xc0, .module = 0xa0, .entry = kSpinCode, .grid_x = 2}};
  device.sms = {{.id = 3, .blocks = {{9, 0, {whole_warp(0, kSpinCode + 0x130, {kSpinCode + 0x50})}}}},
                {.id = 5, .blocks = {{9, 1, {whole_warp(2, kSpinCode + 0x130, {kSpinCode + 0x50})}}}}};
  core.devices = {device};
  return core;
}

}  // namespace rankstacks::testing
