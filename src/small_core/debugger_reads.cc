#include "small_core/debugger_reads.h"

#include <elf.h>
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "elf/bytes.h"
#include "small_core/loader_list.h"

namespace rankstacks::small_core {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMaxNotes = 64u << 10;    // as much of a module's notes as is read of a core
constexpr std::uint64_t kMaxDynamic = 64u << 10;  // a library has some 40 entries of 16 bytes
constexpr std::uint64_t kMaxLoader = 1u << 20;    // the dynamic linker's own data: 12 KB in glibc 2.36
constexpr std::uint64_t kMaxVdso = 64u << 10;     // 8 KB in Linux 6.18
constexpr std::uint64_t kMaxModule = 4u << 20;    // read-only segments of a module whose file may be gone
constexpr std::uint64_t kMaxAllModules = 32u << 20;
constexpr std::uint64_t kInitialBlock = 256u << 10;  // arguments and environment, at the top of the main stack
// glibc's struct pthread at the thread pointer (2,304 bytes in 2.36), and the static TLS below it.
constexpr std::uint64_t kRedZone = 128;  // below the stack pointer (System V ABI, AMD64)
constexpr std::uint64_t kDescriptor = 2496, kStaticTls = 4096;

// Lists ranges, and reads them in one batch.
class Batch {
 public:
  explicit Batch(const target::Target& target) : target_(target) {}
  ~Batch() {
    target_.prefetch(changeable_);
    std::vector<std::byte> bytes(kPage);
    for (const Range& range : ranges_)
      for (Address at = range.start; at < range.end;) {
        const std::uint64_t n = std::min(range.end - at, kPage - at % kPage);
        target_.read(at, std::span(bytes).first(n));
        at += n;
      }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void add(Address start, std::uint64_t size) {
    if (size > 0 && start < ~Address{0} - size) ranges_.push_back({start, start + size});
  }
  // The same for memory that does not come from a file as it is: a system call is needed for it.
  void add_changeable(Address start, std::uint64_t size) {
    add(start, size);
    if (!ranges_.empty() && ranges_.back().start == start) changeable_.push_back(ranges_.back());
  }

 private:
  const target::Target& target_;
  std::vector<Range> ranges_, changeable_;
};

// The ELF header and the program headers of a module, where libdwfl looks for them in memory.
std::vector<Elf64_Phdr> headers_at(const target::Target& target, Address start) {
  const auto header = target.read_value<Elf64_Ehdr>(start);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_phentsize != sizeof(Elf64_Phdr) ||
      header->e_phnum == PN_XNUM)
    return {};
  std::vector<Elf64_Phdr> segments(header->e_phnum);
  if (!target.read_exact(start + header->e_phoff, std::as_writable_bytes(std::span(segments)))) return {};
  return segments;
}

// libdwfl takes a note's offset in the file for its address (dwfl_segment_report_module.c of elfutils 0.188,
// note_vaddr). Of a library that patchelf has made longer they differ, and there is other memory at that address. It
// has to be in the core: for an address that is absent, libdwfl reads bytes of other addresses
// (small_core/absent_notes.h).
Range read_as_note(const target::Module& module, const Elf64_Phdr& p) {
  const Address at = module.range.start + p.p_offset;
  return {at, at + std::min(p.p_filesz, kMaxNotes)};
}

// The same of the program headers: they are where their offset says, if they are not on the first page.
std::optional<Range> read_as_headers(const target::Module& module) {
  const auto header = elf::load<Elf64_Ehdr>(module.image->bytes(), 0);
  if (!header || header->e_phoff + std::uint64_t{header->e_phnum} * sizeof(Elf64_Phdr) <= kPage) return std::nullopt;
  const Address at = module.range.start + header->e_phoff;
  return Range{at, at + std::uint64_t{header->e_phnum} * sizeof(Elf64_Phdr)};
}

// Whether another machine, or this one later, may not have the file.
bool may_be_gone(const target::Target& target, const target::Module& module) {
  if (module.path.starts_with("/memfd:") || module.path.starts_with("/dev/")) return true;
  const auto mappings = target.mappings();
  const auto first = std::lower_bound(mappings.begin(), mappings.end(), module.range.start,
                                      [](const target::Mapping& m, Address a) { return m.range.start < a; });
  return first != mappings.end() && first->range.start == module.range.start && first->deleted;
}

void add_module(const target::Target& target, const target::Module& module, std::uint64_t& left, Batch& batch) {
  if (module.path == "[vdso]") return;
  const bool whole = may_be_gone(target, module);
  for (const Elf64_Phdr& p : headers_at(target, module.range.start)) {
    const Address at = module.to_address(p.p_vaddr);
    if (p.p_type == PT_NOTE) {
      const Range taken = read_as_note(module, p);
      batch.add(at, std::min(p.p_filesz, kMaxNotes));
      if (taken.start != at) batch.add(taken.start, taken.size());
    }
    if (!whole || p.p_type != PT_LOAD || (p.p_flags & PF_W) != 0) continue;
    if (p.p_filesz > std::min(kMaxModule, left)) continue;
    left -= p.p_filesz;
    batch.add(at, p.p_filesz);
  }
}

void add_process(const target::Target& target, const target::AuxiliaryVector& auxv, Batch& batch) {
  const auto loader = target::value_of(auxv, AT_BASE);
  const target::Module* module = loader && *loader != 0 ? target.modules().find(*loader) : nullptr;
  const auto name = target::value_of(auxv, AT_EXECFN);
  for (const target::Mapping& m : target.mappings()) {
    if (module != nullptr && m.writable && module->range.contains(m.range.start))
      batch.add_changeable(m.range.start, std::min(m.range.size(), kMaxLoader));
    if (name && m.range.contains(*name)) {
      const std::uint64_t size = std::min(m.range.size(), kInitialBlock);
      batch.add_changeable(m.range.end - size, size);
    }
  }
  for (const target::ThreadInfo& thread : target.threads()) {
    if (!thread.registers) continue;
    constexpr std::uint64_t kCode = 64;
    batch.add(thread.registers->pc() - kCode, 2 * kCode);
    // The whole page that the stack begins in: libdwfl takes every segment of a core for whole pages.
    batch.add_changeable((thread.registers->sp() - kRedZone) & ~(kPage - 1), kPage);
    if (const Address at = thread.registers->fs_base; at > kStaticTls)
      batch.add_changeable(at - kStaticTls, kStaticTls + kDescriptor);
  }
}

}  // namespace

std::vector<Range> changeable_parts(const target::ModuleMap& modules) {
  std::vector<Range> parts;
  for (const target::Module& module : modules.all()) {
    if (module.path == "[vdso]") {
      parts.push_back({module.range.start, module.range.start + std::min(module.range.size(), kMaxVdso)});
    } else if (!module.image) {
      parts.push_back({module.range.start, module.range.start + kPage});
    } else {
      if (const auto headers = read_as_headers(module)) parts.push_back(*headers);
      for (const Elf64_Phdr& p : module.image->segments()) {
        const Address at = module.to_address(p.p_vaddr);
        if (p.p_type == PT_DYNAMIC && module.range.contains(at))
          parts.push_back({at, at + std::min(p.p_memsz, kMaxDynamic)});
        if (const Range taken = read_as_note(module, p); p.p_type == PT_NOTE && taken.start != at)
          parts.push_back(taken);
      }
    }
  }
  return parts;
}

void read_process_memory(const target::Target& target, const target::AuxiliaryVector& auxv,
                         std::span<const Range> expected) {
  {
    Batch batch(target);
    for (const Range& range : expected) batch.add_changeable(range.start, range.size());
    add_process(target, auxv, batch);
  }
  read_loader_list([&](Address at, std::span<std::byte> into) { return target.read_exact(at, into); }, auxv);
}

void read_module_headers(const target::Target& target) {
  Batch batch(target);
  std::uint64_t left = kMaxAllModules;
  for (const target::Module& module : target.modules().all()) add_module(target, module, left, batch);
}

}  // namespace rankstacks::small_core
