#include "target/core_modules.h"

#include <elf.h>
#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <optional>

#include "elf/notes.h"
#include "target/initial_block.h"

namespace rankstacks::target {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMaxNotes = 64 << 10;  // of a module: build-id, ABI tag and properties have some hundred bytes
constexpr std::uint64_t kMaxVdso = 64 << 10;   // 8 KB in Linux 6.18
constexpr std::uint64_t kMaxHead = 1 << 20;    // compared with the file if there is no build-id
constexpr std::size_t kMaxParts = 4096;        // mappings searched for those of one file: a loader makes four to six
// Bytes copied out of one core's memory for modules whose files are not available.
constexpr std::uint64_t kMaxRescued = 512 << 20;
// Bytes scanned for that: 16 million pages, in about 2 s.
constexpr std::uint64_t kMaxRescueRange = std::uint64_t{64} << 30;

std::uint64_t page_of(std::uint64_t a) { return a & ~(kPage - 1); }

// The ELF header and program headers of a module, from the core's memory or from its file.
struct Headers {
  std::uint16_t type = ET_NONE;
  std::vector<Elf64_Phdr> segments;
};

std::optional<Headers> headers_in_core(const CoreFile& core, Address start) {
  Elf64_Ehdr header;
  if (!core.read_exact(start, std::as_writable_bytes(std::span(&header, 1)))) return std::nullopt;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_machine != EM_X86_64 || header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == PN_XNUM ||
      header.e_phoff > kMaxHead) {
    return std::nullopt;
  }
  Headers headers{header.e_type, std::vector<Elf64_Phdr>(header.e_phnum)};
  if (!core.read_exact(start + header.e_phoff, std::as_writable_bytes(std::span(headers.segments))))
    return std::nullopt;
  return headers;
}

struct Layout {
  Address bias = 0;
  Range span;
};

// Where the loader put a file whose ELF header is mapped at `start`; std::nullopt if it is mapped as data only.
std::optional<Layout> layout_of(const Headers& headers, Address start) {
  Layout layout;
  bool found = false;
  Vaddr low = ~Vaddr{0}, high = 0;
  for (const Elf64_Phdr& p : headers.segments) {
    if (p.p_type != PT_LOAD) continue;
    Vaddr end = 0;
    if (__builtin_add_overflow(p.p_vaddr, p.p_memsz, &end)) return std::nullopt;
    // p_vaddr and p_offset agree modulo the page size, so file offset 0 is loaded at p_vaddr - p_offset.
    if (page_of(p.p_offset) == 0 && p.p_filesz > 0 && !found) {
      layout.bias = start - (p.p_vaddr - p.p_offset);
      found = true;
    }
    low = std::min(low, page_of(p.p_vaddr));
    high = std::max(high, end);
  }
  if (!found || (headers.type == ET_EXEC && layout.bias != 0)) return std::nullopt;
  layout.span = {low + layout.bias, high + layout.bias};
  if (layout.span.start > start || layout.span.end <= start) return std::nullopt;
  return layout;
}

// The PT_LOAD that a mapping of the file is part of.
const Elf64_Phdr* segment_of(const Headers& headers, Address bias, const CoreFileMapping& mapping) {
  for (const Elf64_Phdr& p : headers.segments) {
    if (p.p_type != PT_LOAD || p.p_filesz == 0) continue;
    const Address start = page_of(p.p_vaddr + bias);
    if (mapping.range.start < start || mapping.range.start - start >= p.p_filesz + p.p_vaddr % kPage) continue;
    if (mapping.file_offset - page_of(p.p_offset) == mapping.range.start - start) return &p;
  }
  return nullptr;
}

class ModuleFinder {
 public:
  ModuleFinder(const CoreFile& core, const CoreNotes& notes, CoreImages& images, const Deadline& deadline)
      : core_(core), notes_(notes), images_(images), deadline_(deadline) {}

  CoreModules find() {
    taken_.resize(notes_.files.size());
    flags_.resize(notes_.files.size());
    for (std::size_t i = 0; i < notes_.files.size(); ++i) {
      if (const CoreSegment* segment = core_.find(notes_.files[i].range.start)) flags_[i] = segment->flags;
      else if (const NotedMapping* noted = notes_.own.find(notes_.files[i].range.start)) flags_[i] = noted->flags;
    }
    find_main_program();
    for (std::size_t i = 0; i < notes_.files.size(); ++i) {
      if (taken_[i] || notes_.files[i].file_offset != 0) continue;
      if (deadline_.passed()) {
        found_.gave_up = true;
        found_.problems.push_back(
            {fmt::format(
                 "looking for modules was given up at {} of {} mapped files, as the time for it (--timeout) was over",
                 i, notes_.files.size()),
             "give it more time with --timeout", ProblemCode::kTimeout});
        break;
      }
      start_module(i);
    }
    add_vdso();
    drop_overlaps();
    add_mappings();
    std::sort(found_.file_backed.begin(), found_.file_backed.end(),
              [](const auto& a, const auto& b) { return a.range.start < b.range.start; });
    const auto problems = images_.problems();
    found_.problems.insert(found_.problems.end(), problems.begin(), problems.end());
    found_.missing = images_.missing();
    return std::move(found_);
  }

 private:
  void find_main_program() {
    const auto at = value_of(notes_.auxv, AT_PHDR);
    const auto program = std::find_if(notes_.files.begin(), notes_.files.end(),
                                      [&](const CoreFileMapping& m) { return at && m.range.contains(*at); });
    if (program != notes_.files.end()) main_program_ = program->path;
  }
  bool is_main_program(const CoreFileMapping& mapping) const { return main_program_ == mapping.path; }

  std::size_t parts_end(std::size_t first) const { return std::min(notes_.files.size(), first + kMaxParts); }

  bool may_be_code(std::size_t i) const {
    const CoreFileMapping& mapping = notes_.files[i];
    if (is_main_program(mapping) || mapping.path.find(".so", mapping.path.rfind('/') + 1) != std::string::npos)
      return true;
    for (std::size_t j = i; j < parts_end(i) && notes_.files[j].path == mapping.path; ++j) {
      if (flags_[j] && (*flags_[j] & PF_X) != 0) return true;
    }
    return false;
  }

  void start_module(std::size_t first) {
    const CoreFileMapping& mapping = notes_.files[first];
    CoreModuleIdentity identity{mapping.path, mapping.deleted, is_main_program(mapping), std::nullopt, {}};
    FoundImage file;
    auto headers = headers_in_core(core_, mapping.range.start);
    const bool dumped = headers.has_value();
    if (!dumped) {
      const auto head = core_.view(mapping.range.start, 1);
      // The first page is in the core and has no ELF header: a file of data.
      if (!head.empty() || !may_be_code(first)) return;
      file = images_.find(identity);
      if (file.image)
        headers = Headers{file.image->type(), {file.image->segments().begin(), file.image->segments().end()}};
    }
    const auto layout = headers ? layout_of(*headers, mapping.range.start) : std::nullopt;
    if (headers && !layout) return;
    // Without any header: assumes that the file's own addresses begin at 0, as they do in libraries.
    Address bias = mapping.range.start;
    if (layout) bias = layout->bias;
    Module module{mapping.path, mapping.range, bias, {}, nullptr, {}};

    std::vector<std::size_t> parts;
    bool executable = false;
    std::uint64_t offset = 0;
    for (std::size_t i = first; i < parts_end(first); ++i) {
      const CoreFileMapping& part = notes_.files[i];
      if (layout ? part.range.start >= layout->span.end : part.path != mapping.path) break;
      if (part.path != mapping.path || taken_[i]) continue;
      // There is no header to decide by: another mapping of the same file begins.
      if (!layout && i != first && part.file_offset <= offset) break;
      offset = part.file_offset;
      const Elf64_Phdr* segment = layout ? segment_of(*headers, bias, part) : nullptr;
      if (segment != nullptr && !flags_[i]) flags_[i] = segment->p_flags;
      executable =
          executable || !layout || (segment != nullptr && (segment->p_flags & PF_X) != 0 && (*flags_[i] & PF_X) != 0);
      parts.push_back(i);
    }
    if (!executable) return;  // the file is mapped, but not to run its code
    for (const std::size_t i : parts) taken_[i] = true;
    module.range.end = notes_.files[parts.back()].range.end;

    if (dumped) {
      identity.build_id = build_id_in_core(*headers, module.bias);
      // Memory that the loader may have written to is not a copy of the file.
      const Elf64_Phdr* segment = segment_of(*headers, module.bias, mapping);
      if (segment != nullptr && (segment->p_flags & PF_W) == 0) {
        identity.head = core_.view(mapping.range.start,
                                   std::min<std::uint64_t>({mapping.range.size(), segment->p_filesz, kMaxHead}));
      }
      file = images_.find(identity);
      if (identity.build_id) module.build_id = *identity.build_id;
    }
    module.image = file.image;
    if (module.image && !dumped) module.build_id = module.image->build_id();
    if (module.image) add_file_backed(module, parts);
    else rescue(module, headers, file.why_not);
    found_.modules.push_back(std::move(module));
  }

  // Empty: it has none. std::nullopt: the page with it was not dumped.
  std::optional<BuildId> build_id_in_core(const Headers& headers, Address bias) const {
    for (const Elf64_Phdr& p : headers.segments) {
      if (p.p_type != PT_NOTE) continue;
      const std::uint64_t size = std::min(p.p_filesz, kMaxNotes);
      const auto notes = core_.view(p.p_vaddr + bias, size);
      if (notes.size() < size) return std::nullopt;
      BuildId id = elf::build_id_of_notes(notes.first(size), p.p_align);
      if (!id.empty()) return id;
    }
    return BuildId{};
  }

  // For a module without a file: takes .dynsym and .eh_frame from the core if these pages were dumped. They come from
  // the process itself, so they match.
  void rescue(Module& module, const std::optional<Headers>& headers, const std::string& why) {
    module.why_no_image = why;
    if (!headers) return;
    const Address bias = module.bias;
    DeadlineCheck deadline(deadline_);
    const auto read = [&](Vaddr vaddr, std::span<std::byte> into) {
      if (deadline.passed()) return false;
      // Code is not copied: libtorch has a gigabyte of it, and read() returns it in any case.
      for (const Elf64_Phdr& p : headers->segments) {
        if (p.p_type == PT_LOAD && (p.p_flags & PF_X) != 0 && p.p_offset >= kPage && vaddr - p.p_vaddr < p.p_filesz)
          return false;
      }
      if (into.size() > rescue_bytes_left_ || !core_.read_exact(vaddr + bias, into)) return false;
      rescue_bytes_left_ -= into.size();
      return true;
    };
    auto image = elf::Image::from_memory(read, module.range.start - bias, module.path,
                                         std::min(rescue_range_left_, elf::Image::kMaxMemory));
    // Headers may claim any sizes, and lead to the same bytes over and over: the amount scanned is bounded for all
    // modules together.
    for (const Elf64_Phdr& p : headers->segments) {
      if (p.p_type == PT_LOAD) rescue_range_left_ -= std::min(rescue_range_left_, p.p_filesz);
    }
    if (!image) return;
    const auto unwind_table = (*image)->eh_frame_hdr();
    const bool has_symbols = (*image)->dynamic_symbols().size() > 0;
    // A capture has both in its own notes; its frames still need the file's own addresses.
    if (!notes_.own.is_capture() && !has_symbols && !(unwind_table && !(*image)->at(*unwind_table).empty())) return;
    module.image = *image;
    module.why_no_image.clear();
  }

  void add_file_backed(const Module& module, const std::vector<std::size_t>& parts) {
    const Headers headers{module.image->type(), {module.image->segments().begin(), module.image->segments().end()}};
    const auto bytes = module.image->bytes();
    for (const std::size_t i : parts) {
      const CoreFileMapping& part = notes_.files[i];
      const Elf64_Phdr* segment = segment_of(headers, module.bias, part);
      // The parts of a writable segment that are read-only now (RELRO) were relocated by the loader.
      if (segment == nullptr || (segment->p_flags & PF_W) != 0 || (flags_[i] && (*flags_[i] & PF_W) != 0)) continue;
      if (part.file_offset >= bytes.size()) continue;
      const std::uint64_t size = std::min<std::uint64_t>(part.range.size(), bytes.size() - part.file_offset);
      found_.file_backed.push_back({part.range, bytes.subspan(part.file_offset, size)});
    }
  }

  void add_vdso() {
    const auto start = value_of(notes_.auxv, AT_SYSINFO_EHDR);
    if (!start || *start == 0) return;
    const auto headers = headers_in_core(core_, *start);
    const auto layout = headers ? layout_of(*headers, *start) : std::nullopt;
    const CoreSegment* segment = core_.find(*start);
    if (!layout || segment == nullptr) return;
    Module module{"[vdso]", {*start, std::min(segment->range.end, *start + kMaxVdso)}, layout->bias, {}, nullptr, {}};
    // The kernel maps the whole file, sections included.
    const auto bytes = core_.view(*start, kMaxVdso);
    auto image = elf::Image::from_bytes({bytes.begin(), bytes.end()}, "[vdso]");
    if (image) {
      module.image = *image;
      module.build_id = (*image)->build_id();
    } else {
      rescue(module, headers, image.error().message());
    }
    vdso_ = module.range;
    found_.modules.push_back(std::move(module));
  }

  void drop_overlaps() {
    auto& modules = found_.modules;
    std::stable_sort(modules.begin(), modules.end(),
                     [](const Module& a, const Module& b) { return a.range.start < b.range.start; });
    std::vector<Module> kept;
    for (Module& module : modules) {
      if (!kept.empty() && module.range.start < kept.back().range.end) {
        found_.problems.push_back({fmt::format("module {}: left out, as it lies inside {} (at {:#x})", module.path,
                                               kept.back().path, module.range.start),
                                   std::nullopt, ProblemCode::kModuleOverlap, module.path});
        continue;
      }
      kept.push_back(std::move(module));
    }
    modules = std::move(kept);
  }

  void add_mappings() {
    const auto anonymous = [&](Address start, Address end, std::uint32_t flags) {
      if (start >= end) return;
      Mapping m;
      m.range = {start, end};
      m.readable = (flags & PF_R) != 0;
      m.writable = (flags & PF_W) != 0;
      m.executable = (flags & PF_X) != 0;
      if (vdso_ && vdso_->start == start) m.path = "[vdso]";
      if (start == 0xffffffffff600000) m.path = "[vsyscall]";  // Linux arch/x86/include/uapi/asm/vsyscall.h
      found_.mappings.push_back(std::move(m));
    };
    // A capture holds some pages of a mapping only.
    std::vector<NotedMapping> noted = notes_.own.mappings;
    if (noted.empty())
      for (const CoreSegment& segment : core_.segments()) noted.push_back({segment.range, segment.flags});
    std::size_t next = 0;  // the first file that ends behind the start of the segment
    for (const NotedMapping& segment : noted) {
      while (next < notes_.files.size() && notes_.files[next].range.end <= segment.range.start) ++next;
      Address at = segment.range.start;
      for (std::size_t i = next; i < notes_.files.size() && notes_.files[i].range.start < segment.range.end; ++i) {
        anonymous(at, notes_.files[i].range.start, segment.flags);
        at = std::max(at, notes_.files[i].range.end);
      }
      anonymous(at, segment.range.end, segment.flags);
    }
    for (std::size_t i = 0; i < notes_.files.size(); ++i) {
      const CoreFileMapping& file = notes_.files[i];
      const std::uint32_t flags = flags_[i].value_or(PF_R);
      Mapping m;
      m.range = file.range;
      m.file_offset = file.file_offset;
      m.path = file.path;
      m.deleted = file.deleted;
      m.readable = (flags & PF_R) != 0;
      m.writable = (flags & PF_W) != 0;
      m.executable = (flags & PF_X) != 0;
      found_.mappings.push_back(std::move(m));
    }
    std::sort(found_.mappings.begin(), found_.mappings.end(),
              [](const Mapping& a, const Mapping& b) { return a.range.start < b.range.start; });
  }

  const CoreFile& core_;
  const CoreNotes& notes_;
  CoreImages& images_;
  Deadline deadline_;
  std::optional<std::string> main_program_;
  std::uint64_t rescue_bytes_left_ = kMaxRescued, rescue_range_left_ = kMaxRescueRange;
  CoreModules found_;
  std::vector<bool> taken_;
  // The PF_* flags of each mapped file, if a PT_LOAD or the ELF file states them.
  std::vector<std::optional<std::uint32_t>> flags_;
  std::optional<Range> vdso_;
};

}  // namespace

CoreModules find_core_modules(const CoreFile& core, const CoreNotes& notes, CoreImages& images,
                              const Deadline& deadline) {
  return ModuleFinder(core, notes, images, deadline).find();
}

}  // namespace rankstacks::target
