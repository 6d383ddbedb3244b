#include "elf/image.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/root_directory.h"
#include "base/unattended.h"
#include "elf/bytes.h"
#include "elf/dynamic.h"
#include "elf/image_impl.h"
#include "elf/notes.h"

namespace rankstacks::elf {
namespace {

constexpr std::size_t kChunk = 1 << 20;
constexpr std::size_t kPage = 4096;

// Linux runs no program with more than 64 KiB of program headers (fs/binfmt_elf.c). A header without section 0 counts
// up to 65,534.
constexpr std::uint64_t kMaxSegments = 1 << 16;
// Names are compared with literals, and shown; a longer one counts as no name. Many sections may all have the rest of a
// large string table as their name.
constexpr std::size_t kLongestSectionName = 4096;
// All names together: a library has some hundred bytes, an object file with a section for each function some MiB.
constexpr std::uint64_t kMaxSectionNames = 64 << 20;
// The total for all note areas of one file, which may be the same area under many headers. A library has some hundred
// bytes, or some tens of KiB with probes.
constexpr std::uint64_t kMaxNotes = 16 << 20;

Error malformed(const std::string& subject, std::string what, std::optional<std::uint64_t> where = {}) {
  return Error{.code = ErrorCode::kMalformed, .subject = subject, .what = std::move(what), .where = where};
}

Error unsupported(const std::string& subject, std::string what, std::uint64_t where) {
  return Error{.code = ErrorCode::kUnsupported, .subject = subject, .what = std::move(what), .where = where};
}

Error unreadable(const std::string& subject, std::string what, int os_errno) {
  const ErrorCode code = os_errno == EACCES || os_errno == EPERM ? ErrorCode::kPermission
                         : os_errno == ENOENT                    ? ErrorCode::kNotFound
                                                                 : ErrorCode::kUnreadable;
  return Error{.code = code, .subject = subject, .what = std::move(what), .os_errno = os_errno};
}

Result<Elf64_Ehdr> parse_header(std::span<const std::byte> bytes, const std::string& subject) {
  const auto ident = exactly(bytes, 0, EI_NIDENT);
  if (ident.empty()) return fail(malformed(subject, fmt::format("no ELF header: {} bytes in all", bytes.size())));
  if (std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) return fail(malformed(subject, "not an ELF file"));
  const auto byte_at = [&](int i) { return static_cast<unsigned>(ident[static_cast<std::size_t>(i)]); };
  if (byte_at(EI_CLASS) != ELFCLASS64) {
    return fail(
        unsupported(subject, fmt::format("ELF class {} where 2 (64-bit) is expected", byte_at(EI_CLASS)), EI_CLASS));
  }
  if (byte_at(EI_DATA) != ELFDATA2LSB) {
    return fail(unsupported(
        subject, fmt::format("ELF byte order {} where 1 (little-endian) is expected", byte_at(EI_DATA)), EI_DATA));
  }
  const auto header = load<Elf64_Ehdr>(bytes, 0);
  if (!header)
    return fail(
        malformed(subject, fmt::format("the ELF header is cut off: {} of {} bytes", bytes.size(), sizeof(Elf64_Ehdr))));
  if (header->e_machine != EM_X86_64) {
    return fail(unsupported(subject,
                            fmt::format("machine {} where {} (x86-64) is expected", header->e_machine, EM_X86_64),
                            offsetof(Elf64_Ehdr, e_machine)));
  }
  return *header;
}

// The sections of an image, and the three numbers that section 0 holds if the header has no room for them.
struct SectionTable {
  std::vector<Section> sections;
  std::string names;
  std::uint64_t segment_count = 0;
};

Result<SectionTable> parse_sections(std::span<const std::byte> bytes, const Elf64_Ehdr& header,
                                    const std::string& subject) {
  SectionTable table;
  table.segment_count = header.e_phnum;
  if (header.e_shoff == 0) {
    if (header.e_phnum == PN_XNUM) {
      return fail(malformed(subject, "the number of program headers is in section 0, and there is no section",
                            offsetof(Elf64_Ehdr, e_phnum)));
    }
    return table;
  }
  if (header.e_shentsize != sizeof(Elf64_Shdr)) {
    if (header.e_shnum == 0 && header.e_phnum != PN_XNUM) return table;
    return fail(malformed(
        subject,
        fmt::format("section headers of {} bytes where {} are expected", header.e_shentsize, sizeof(Elf64_Shdr)),
        offsetof(Elf64_Ehdr, e_shentsize)));
  }
  const auto first = load<Elf64_Shdr>(bytes, header.e_shoff);
  if (!first) return fail(malformed(subject, "the section headers begin outside the file", header.e_shoff));
  const std::uint64_t count = header.e_shnum != 0 ? header.e_shnum : first->sh_size;
  const std::uint64_t names_index = header.e_shstrndx != SHN_XINDEX ? header.e_shstrndx : first->sh_link;
  if (header.e_phnum == PN_XNUM) table.segment_count = first->sh_info;
  if (count > (bytes.size() - header.e_shoff) / sizeof(Elf64_Shdr)) {
    return fail(
        malformed(subject, fmt::format("{} section headers reach past the end of the file", count), header.e_shoff));
  }
  if (names_index < count) {
    const auto strings = load<Elf64_Shdr>(bytes, header.e_shoff + names_index * sizeof(Elf64_Shdr));
    if (strings && strings->sh_type == SHT_STRTAB && strings->sh_size <= kMaxSectionNames) {
      const auto there = exactly(bytes, strings->sh_offset, strings->sh_size);
      table.names.assign(reinterpret_cast<const char*>(there.data()), there.size());
    }
  }
  const std::string_view names = table.names;
  table.sections.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    Section section;
    section.header = *load<Elf64_Shdr>(bytes, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.header.sh_name < names.size()) {
      const std::string_view name = names.substr(section.header.sh_name, kLongestSectionName);
      if (const auto end = name.find('\0'); end != name.npos) section.name = name.substr(0, end);
    }
    table.sections.push_back(section);
  }
  return table;
}

Result<std::vector<Elf64_Phdr>> parse_segments(std::span<const std::byte> bytes, const Elf64_Ehdr& header,
                                               std::uint64_t count, const std::string& subject) {
  std::vector<Elf64_Phdr> segments;
  if (count == 0) return segments;
  if (count > kMaxSegments)
    return fail(unsupported(subject, fmt::format("{} program headers, more than any loader takes", count),
                            offsetof(Elf64_Ehdr, e_phnum)));
  if (header.e_phentsize != sizeof(Elf64_Phdr)) {
    return fail(malformed(
        subject,
        fmt::format("program headers of {} bytes where {} are expected", header.e_phentsize, sizeof(Elf64_Phdr)),
        offsetof(Elf64_Ehdr, e_phentsize)));
  }
  if (header.e_phoff > bytes.size() || count > (bytes.size() - header.e_phoff) / sizeof(Elf64_Phdr)) {
    return fail(
        malformed(subject, fmt::format("{} program headers reach past the end of the file", count), header.e_phoff));
  }
  segments.resize(count);
  std::memcpy(segments.data(), bytes.data() + header.e_phoff, count * sizeof(Elf64_Phdr));
  return segments;
}

}  // namespace

// Sorted by address, without overlaps: of two that overlap, the one that begins first stays. Every loader requires this
// order; a file in any other order was made by hand.
void Image::Impl::index_loads() {
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD) loads.push_back(segment);
    has_interpreter = has_interpreter || segment.p_type == PT_INTERP;
  }
  std::stable_sort(loads.begin(), loads.end(),
                   [](const Elf64_Phdr& a, const Elf64_Phdr& b) { return a.p_vaddr < b.p_vaddr; });
  std::size_t kept = 0;
  Vaddr end = 0;
  for (const Elf64_Phdr& load : loads) {
    const std::uint64_t size = std::max(load.p_filesz, load.p_memsz);
    if (size == 0 || (kept > 0 && load.p_vaddr < end)) continue;
    end = size > std::numeric_limits<Vaddr>::max() - load.p_vaddr ? std::numeric_limits<Vaddr>::max()
                                                                  : load.p_vaddr + size;
    loads[kept++] = load;
  }
  loads.resize(kept);
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.start < b.start; });
}

// Registers each table once: the first of its kind that is not empty, then the tables that belong to the two found.
void Image::Impl::index_symbol_tables(const Image& image) {
  constexpr std::size_t kNone = 0;  // section 0 is never a table
  std::size_t static_at = kNone, dynamic_at = kNone;
  for (std::size_t i = 1; i < sections.size(); ++i) {
    const Elf64_Shdr& header = sections[i].header;
    if (header.sh_entsize != sizeof(Elf64_Sym) || (header.sh_type != SHT_SYMTAB && header.sh_type != SHT_DYNSYM))
      continue;
    std::size_t& at = header.sh_type == SHT_SYMTAB ? static_at : dynamic_at;
    if (at == kNone && !image.contents(sections[i]).empty()) at = i;
  }
  for (const auto& [at, table] : {std::pair(static_at, &static_symbols), {dynamic_at, &dynamic_symbols}}) {
    if (at == kNone) continue;
    table->symbols = image.contents(sections[at]);
    const std::uint32_t strings = sections[at].header.sh_link;
    if (strings < sections.size()) table->strings = image.contents(sections[strings]);
  }
  for (const Section& section : sections) {
    if (section.header.sh_link == kNone ||
        (section.header.sh_link != static_at && section.header.sh_link != dynamic_at))
      continue;
    SymbolTable& table = section.header.sh_link == static_at ? static_symbols : dynamic_symbols;
    if (section.header.sh_type == SHT_SYMTAB_SHNDX) table.section_indices = image.contents(section);
    if (section.header.sh_type == SHT_GNU_HASH) table.gnu_hash = image.contents(section);
    if (section.header.sh_type == SHT_HASH) table.sysv_hash = image.contents(section);
  }
}

// Everything that needs the segments: the table of loaded segments, the build-id, the symbol tables.
void Image::Impl::index_contents(const Image& image) {
  index_loads();
  index_symbol_tables(image);
  std::uint64_t notes_left = kMaxNotes;
  const auto look_for_id = [&](std::span<const std::byte> notes, std::uint64_t alignment) {
    notes = clip(notes, 0, notes_left);
    notes_left -= notes.size();
    build_id = build_id_of_notes(notes, alignment);
  };
  for (const Section& section : sections) {
    if (section.header.sh_type == SHT_NOTE && build_id.empty())
      look_for_id(image.contents(section), section.header.sh_addralign);
  }
  Vaddr low = std::numeric_limits<Vaddr>::max();
  Vaddr high = 0;
  for (const Elf64_Phdr& load : loads) {
    low = std::min(low, load.p_vaddr);
    if (load.p_filesz <= std::numeric_limits<Vaddr>::max() - load.p_vaddr)
      high = std::max(high, load.p_vaddr + load.p_filesz);
  }
  bool dynamic_seen = false;  // a sound file has one; the search that starts from it tries many addresses
  for (const Elf64_Phdr& segment : segments) {
    // A debug file made by eu-strip keeps the program headers of the stripped file, whose offsets mean nothing in it.
    // So the notes of sections come first.
    if (segment.p_type == PT_NOTE && build_id.empty())
      look_for_id(clip(image.at(segment.p_vaddr), 0, segment.p_filesz), segment.p_align);
    if (segment.p_type != PT_DYNAMIC || dynamic_seen || !sections.empty() || !dynamic_symbols.symbols.empty()) continue;
    const auto dynamic = clip(image.at(segment.p_vaddr), 0, segment.p_filesz);
    dynamic_seen = !dynamic.empty();
    dynamic_symbols = find_dynamic_symbols(
        dynamic, [&image](Vaddr v) { return image.at(v); }, low, high);
  }
}

Result<std::shared_ptr<const Image>> Image::parse(std::unique_ptr<Impl> impl) {
  auto header = parse_header(impl->bytes, impl->name);
  if (!header) return fail(header.error());
  auto sections = parse_sections(impl->bytes, *header, impl->name);
  if (!sections) return fail(sections.error());
  auto segments = parse_segments(impl->bytes, *header, sections->segment_count, impl->name);
  if (!segments) return fail(segments.error());
  impl->type = header->e_type;
  impl->section_names = std::move(sections->names);
  impl->sections = std::move(sections->sections);
  impl->segments = std::move(*segments);
  std::shared_ptr<Image> image(new Image(std::move(impl)));
  image->impl_->index_contents(*image);
  return image;
}

namespace {

Result<OpenedFile> opened_or_why(tl::expected<RegularFile, NotRegular> file, const std::string& shown_name) {
  if (file) return OpenedFile{std::move(*file)};
  const NotRegular& why = file.error();
  Error error = why.kind.empty() ? unreadable(shown_name, "cannot open", why.os_errno)
                                 : Error{.code = ErrorCode::kUnreadable,
                                         .subject = shown_name,
                                         .what = fmt::format("{}, not a regular file", why.kind)};
  error.hint = why.hint;
  return fail(std::move(error));
}

}  // namespace

Result<OpenedFile> open_regular(const std::string& path, const std::string& shown_name) {
  reading_now(shown_name);
  return opened_or_why(open_regular_file(path), shown_name);
}

Result<OpenedFile> open_regular_below(const std::string& root, const std::string& path, const std::string& shown_name) {
  reading_now(shown_name);
  const auto directory = RootDirectory::open(root);
  if (!directory) return fail(unreadable(shown_name, "cannot open the root " + root, errno));
  const FileDescriptor place = directory->place(path);
  if (!place.is_open()) return fail(unreadable(shown_name, "cannot open", errno));
  return opened_or_why(open_regular_file(place), shown_name);
}

namespace {

bool others_may_change_file(const OpenedFile& file, const std::string& path, MountNamespaces& namespaces) {
  constexpr std::uint32_t kFuse = 0x65735546;  // FUSE_SUPER_MAGIC: served by a process
  const struct stat& status = file.status;
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 || file.file_system == kFuse) return true;
  if (const uid_t own = geteuid(); status.st_uid == own && own != 0) return false;
  return status.st_uid != 0 || namespaces.is_elsewhere(path);
}

}  // namespace

std::optional<MountNamespaces::Identity> MountNamespaces::of(const std::string& process) {
  struct stat status {};
  if (stat(("/proc/" + process + "/ns/mnt").c_str(), &status) != 0) return std::nullopt;
  return Identity(status.st_dev, status.st_ino);
}

bool MountNamespaces::is_elsewhere(const std::string& path) {
  constexpr std::string_view kProc = "/proc/";
  if (!path.starts_with(kProc)) return false;
  const std::string process = path.substr(kProc.size(), path.find('/', kProc.size()) - kProc.size());
  if (process == "self") return false;
  const std::lock_guard lock(mutex_);
  if (const auto known = elsewhere_.find(process); known != elsewhere_.end()) return known->second;
  if (!own_) own_ = of("self");
  const auto theirs = of(process);
  if (!own_ || !theirs) return true;
  return elsewhere_.emplace(process, *own_ != *theirs).first->second;
}

Result<std::shared_ptr<const Image>> Image::map(const OpenedFile& file, const std::string& path,
                                                const std::string& shown_name, MountNamespaces& namespaces) {
  auto impl = std::make_unique<Impl>();
  impl->name = shown_name;
  impl->path = path;
  impl->owner = file.status.st_uid;
  impl->others_may_change = others_may_change_file(file, path, namespaces);
  if (file.status.st_size > 0) {
    auto mapped = MappedFile::map(file.descriptor.get(), static_cast<std::size_t>(file.status.st_size));
    if (!mapped) return fail(unreadable(shown_name, "cannot map", errno));
    impl->mapped = std::move(*mapped);
    impl->bytes = impl->mapped.bytes();
  }
  return parse(std::move(impl));
}

Result<std::shared_ptr<const Image>> Image::open(const std::string& path, const std::string& shown_name) {
  auto file = open_regular(path, shown_name);
  if (!file) return fail(file.error());
  MountNamespaces namespaces;
  return map(*file, path, shown_name, namespaces);
}

Result<std::shared_ptr<const Image>> Image::open_below(const std::string& root, const std::string& path,
                                                       const std::string& shown_name) {
  auto file = open_regular_below(root, path, shown_name);
  if (!file) return fail(file.error());
  MountNamespaces namespaces;
  return map(*file, root + path, shown_name, namespaces);
}

Result<std::shared_ptr<const Image>> Image::from_bytes(std::vector<std::byte> bytes, const std::string& shown_name) {
  auto impl = std::make_unique<Impl>();
  impl->name = shown_name;
  impl->owned = std::move(bytes);
  impl->bytes = impl->owned;
  return parse(std::move(impl));
}

Result<std::shared_ptr<const Image>> Image::from_memory(const MemoryReader& read, Vaddr vaddr_of_header,
                                                        const std::string& shown_name, std::uint64_t most) {
  auto impl = std::make_unique<Impl>();
  impl->name = shown_name;
  std::vector<std::byte> head(sizeof(Elf64_Ehdr));
  const auto cannot_read = [&](std::string what, Vaddr where) {
    return Error{.code = ErrorCode::kUnreadable, .subject = shown_name, .what = std::move(what), .where = where};
  };
  if (!read(vaddr_of_header, head)) return fail(cannot_read("the ELF header is not in memory", vaddr_of_header));
  auto header = parse_header(head, shown_name);
  if (!header) return fail(header.error());
  if (header->e_phnum == PN_XNUM) {
    return fail(unsupported(shown_name, "more than 65534 program headers in memory, where no section says their number",
                            offsetof(Elf64_Ehdr, e_phnum)));
  }
  const std::uint64_t table_size = std::uint64_t{header->e_phnum} * sizeof(Elf64_Phdr);
  const Vaddr table_at = vaddr_of_header + header->e_phoff;
  std::vector<std::byte> table(table_size);
  if (table_at < vaddr_of_header || !read(table_at, table))
    return fail(cannot_read("the program headers are not in memory", table_at));
  header->e_phoff = 0;
  auto segments = parse_segments(table, *header, header->e_phnum, shown_name);
  if (!segments) return fail(segments.error());
  impl->type = header->e_type;
  impl->segments = std::move(*segments);

  std::uint64_t budget = most;
  std::vector<std::byte> buffer(kChunk);
  for (const Elf64_Phdr& load : impl->segments) {
    if (load.p_type != PT_LOAD || load.p_filesz > std::numeric_limits<Vaddr>::max() - load.p_vaddr) continue;
    const Vaddr end = load.p_vaddr + load.p_filesz;
    bool extend = false;  // the previous run ends where the next chunk begins
    for (Vaddr v = load.p_vaddr; v < end && budget > 0;) {
      // A chunk that cannot be read in full is read page by page, up to the start of the next chunk.
      const Vaddr stop = v + std::min({end - v, kChunk - v % kChunk, budget});
      const auto take = [&](Vaddr to) {
        const std::span<std::byte> piece = std::span(buffer).first(to - v);
        const bool there = read(v, piece);
        if (there && !extend) impl->runs.push_back({v, {}});
        if (there) impl->runs.back().bytes.insert(impl->runs.back().bytes.end(), piece.begin(), piece.end());
        return there;
      };
      const Vaddr start = v;
      if (take(stop)) {
        extend = true;
        v = stop;
      } else {
        while (v < stop) {
          const Vaddr page_end = v + std::min<std::uint64_t>(stop - v, kPage - v % kPage);
          extend = take(page_end);
          v = page_end;
        }
      }
      budget -= std::min(budget, v - start);
    }
  }
  std::shared_ptr<Image> image(new Image(std::move(impl)));
  image->impl_->index_contents(*image);
  return image;
}

Image::Image(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Image::~Image() = default;

const std::string& Image::name() const { return impl_->name; }
const std::string& Image::path() const { return impl_->path; }
std::optional<std::uint32_t> Image::owner() const { return impl_->owner; }
bool Image::others_may_change() const { return impl_->others_may_change; }
const BuildId& Image::build_id() const { return impl_->build_id; }
std::uint16_t Image::type() const { return impl_->type; }
std::span<const Elf64_Phdr> Image::segments() const { return impl_->segments; }
std::span<const Section> Image::sections() const { return impl_->sections; }
std::span<const std::byte> Image::bytes() const { return impl_->bytes; }
bool Image::has_lost_pages() const { return impl_->mapped.has_lost_pages(); }
const SymbolTable& Image::static_symbols() const { return impl_->static_symbols; }
const SymbolTable& Image::dynamic_symbols() const { return impl_->dynamic_symbols; }

const Section* Image::section(std::string_view name) const {
  const auto found =
      std::find_if(impl_->sections.begin(), impl_->sections.end(), [&](const Section& s) { return s.name == name; });
  return found == impl_->sections.end() ? nullptr : &*found;
}

std::span<const std::byte> Image::contents(const Section& s) const {
  if (s.header.sh_type == SHT_NOBITS || s.header.sh_type == SHT_NULL) return {};
  return exactly(impl_->bytes, s.header.sh_offset, s.header.sh_size);
}

std::span<const Elf64_Phdr> Image::loads() const { return impl_->loads; }

const Elf64_Phdr* Image::load_of(Vaddr vaddr) const {
  const auto& loads = impl_->loads;
  const auto after =
      std::upper_bound(loads.begin(), loads.end(), vaddr, [](Vaddr v, const Elf64_Phdr& p) { return v < p.p_vaddr; });
  if (after == loads.begin()) return nullptr;
  const Elf64_Phdr& load = *std::prev(after);
  return vaddr - load.p_vaddr < std::max(load.p_filesz, load.p_memsz) ? &load : nullptr;
}

std::span<const std::byte> Image::at(Vaddr vaddr) const {
  if (impl_->bytes.empty()) {
    const auto& runs = impl_->runs;
    const auto after =
        std::upper_bound(runs.begin(), runs.end(), vaddr, [](Vaddr v, const Impl::Run& run) { return v < run.start; });
    if (after == runs.begin()) return {};
    const Impl::Run& run = *std::prev(after);
    return clip(run.bytes, vaddr - run.start, run.bytes.size());
  }
  const Elf64_Phdr* load = load_of(vaddr);
  if (load == nullptr || vaddr - load->p_vaddr >= load->p_filesz) return {};
  const std::uint64_t skip = vaddr - load->p_vaddr;
  if (load->p_offset > std::numeric_limits<std::uint64_t>::max() - skip) return {};
  return clip(impl_->bytes, load->p_offset + skip, load->p_filesz - skip);
}

bool Image::has_interpreter() const { return impl_->has_interpreter; }

std::optional<Vaddr> Image::eh_frame_hdr() const {
  for (const Elf64_Phdr& segment : impl_->segments) {
    if (segment.p_type == PT_GNU_EH_FRAME) return segment.p_vaddr;
  }
  return std::nullopt;
}

std::optional<Symbol> Image::find_symbol(std::string_view name) const {
  if (auto found = impl_->dynamic_symbols.find(name)) return found;
  // .symtab has no hash table: a name that was searched once, mostly in vain, is not searched again for the next rank.
  const std::lock_guard lock(impl_->found_mutex);
  const auto known = impl_->found.find(name);
  if (known != impl_->found.end()) return known->second;
  return impl_->found.emplace(std::string(name), impl_->static_symbols.find(name)).first->second;
}

std::optional<Symbol> Image::find_exported(std::string_view name) const { return impl_->dynamic_symbols.find(name); }

bool Image::imports(std::string_view name) const {
  const std::lock_guard lock(impl_->found_mutex);
  const auto known = impl_->imported.find(name);
  if (known != impl_->imported.end()) return known->second;
  return impl_->imported.emplace(std::string(name), impl_->dynamic_symbols.has_undefined(name)).first->second;
}

std::string to_string(const BuildId& id) {
  if (id.empty()) return "none";
  std::string text;
  for (const std::uint8_t byte : id) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace rankstacks::elf
