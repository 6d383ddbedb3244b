#include "symbolizers/dwarf_lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <libelf.h>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include "symbolizers/debug_elf.h"
#include "symbolizers/dwarf_unit.h"
#include "symbolizers/line_program.h"
#include "symbolizers/scope_walk.h"
#include "symbolizers/symbolizer.h"
#include "symbolizers/unpack_debug.h"

namespace rankstacks::symbolizers {
namespace {

struct EndElf {
  void operator()(Elf* elf) const { elf_end(elf); }
};
struct EndDwarf {
  void operator()(Dwarf* dwarf) const { dwarf_end(dwarf); }
};
using ElfHandle = std::unique_ptr<Elf, EndElf>;
using DwarfHandle = std::unique_ptr<Dwarf, EndDwarf>;

struct OpenDwarf {
  std::shared_ptr<const elf::Image> unpacked;  // if the file's own sections are compressed, or others may change it
  ElfHandle elf;                               // borrows the bytes
  DwarfHandle dwarf;                           // borrows the ELF handle
  const elf::Image* image = nullptr;
};

// libdw's own handler would exit with status 1.
// An attribute of the type; clang does not make [[noreturn]] a part of the type.
__attribute__((noreturn)) void out_of_memory() {
  if (const auto handler = std::get_new_handler()) handler();
  std::abort();
}

Result<OpenDwarf> open_dwarf(const elf::Image& image) {
  static std::once_flag version_set;
  std::call_once(version_set, [] { elf_version(EV_CURRENT); });
  OpenDwarf opened;
  opened.image = &image;
  // libdw checks offsets, and the ends of strings, and reads the bytes again when it uses them.
  if (has_packed_debug(image) || image.others_may_change()) {
    auto unpacked = unpack_debug(image);
    if (!unpacked) return fail(unpacked.error());
    opened.unpacked = std::move(*unpacked);
    opened.image = opened.unpacked.get();
  }
  // As long as nothing is compressed, libelf only reads the bytes that it is given, and without a file it has nowhere
  // to search from: no debuginfod, no path that the file names.
  const auto bytes = opened.image->bytes();
  opened.elf.reset(elf_memory(const_cast<char*>(reinterpret_cast<const char*>(bytes.data())), bytes.size()));
  if (opened.elf != nullptr) opened.dwarf.reset(dwarf_begin_elf(opened.elf.get(), DWARF_C_READ, nullptr));
  if (opened.dwarf == nullptr) {
    const char* why = opened.elf == nullptr ? elf_errmsg(-1) : dwarf_errmsg(-1);
    return fail(Error{
        .code = ErrorCode::kMalformed, .subject = image.name(), .what = why, .where = {}, .os_errno = 0, .hint = {}});
  }
  dwarf_new_oom_handler(opened.dwarf.get(), out_of_memory);
  return opened;
}

std::span<const std::byte> section_bytes(const elf::Image& image, std::string_view name) {
  const elf::Section* section = image.section(name);
  return section == nullptr ? std::span<const std::byte>{} : image.contents(*section);
}

// The complete unit of a skeleton.
struct SplitUnit {
  std::shared_ptr<const elf::Image> image;  // its own two sections
  OpenDwarf dwarf;                          // borrows them
  Dwarf_Die die;
  SplitSections sections;              // of the file that the SplitSource has
  std::span<const std::byte> entries;  // .debug_info of `image`
};

// The unit with this id among those of a .dwo, which usually has one, and several after link time optimization.
std::optional<Dwarf_Die> unit_with_id(Dwarf* dwarf, std::uint64_t wanted, DeadlineCheck& deadline) {
  constexpr int kMaxUnits = 4096;
  Dwarf_CU* unit = nullptr;
  Dwarf_Die die;
  std::uint8_t type = 0;
  for (int i = 0;
       i < kMaxUnits && !deadline.passed() && dwarf_get_units(dwarf, unit, &unit, nullptr, &type, &die, nullptr) == 0;
       ++i) {
    std::uint64_t id = 0;
    if (type == DW_UT_split_compile &&
        dwarf_cu_info(unit, nullptr, nullptr, nullptr, nullptr, &id, nullptr, nullptr) == 0 && id == wanted)
      return die;
  }
  return std::nullopt;
}

// A compilation unit, and the addresses in it (by index, ascending).
struct Unit {
  Dwarf_Die die;
  std::vector<std::size_t> members;
};

// For the names and paths of one file's frames: a broken file may give each of them the same text of megabytes.
constexpr std::size_t kMaxText = 256 << 20;

// The name of an entry itself, or of the function whose code it has.
std::optional<std::string> function_name(const DwarfUnit& unit, Dwarf_Die die) {
  constexpr int kMaxOrigins = 16;  // two are usual: an inlined copy, the function, its declaration in a class
  std::optional<std::string> plain;
  for (int i = 0; i < kMaxOrigins; ++i) {
    Dwarf_Attribute attribute;
    for (const unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
      if (dwarf_attr(&die, name, &attribute) == nullptr) continue;
      if (const auto mangled = unit.text(attribute)) return demangle(*mangled);
    }
    if (!plain && dwarf_attr(&die, DW_AT_name, &attribute) != nullptr) plain = unit.text(attribute);
    if (dwarf_attr(&die, DW_AT_abstract_origin, &attribute) == nullptr &&
        dwarf_attr(&die, DW_AT_specification, &attribute) == nullptr)
      break;
    Dwarf_Die origin;
    if (dwarf_formref_die(&attribute, &origin) == nullptr) break;
    die = origin;
  }
  return plain;
}

std::optional<int> to_line(std::optional<std::uint64_t> number) {
  if (!number || *number == 0 || *number > 0x7fffffff) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace

struct DwarfLines::Impl {
  OpenDwarf alt;  // borrowed by `main`
  OpenDwarf main;
  LineSections sections;
  AddressSections address_sections;
  SplitSource* split = nullptr;
  mutable std::uint64_t copied = 0;  // of split units, in bytes

  std::vector<Unit> units_of(std::span<const Vaddr> addresses, DeadlineCheck& deadline) const;
  std::optional<LineProgram> lines_of(DwarfUnit& unit) const;
  std::optional<SplitUnit> split_unit_of(DwarfUnit& unit, DeadlineCheck& deadline) const;
};

DwarfLines::DwarfLines(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DwarfLines::~DwarfLines() = default;

Result<std::unique_ptr<DwarfLines>> DwarfLines::open(const elf::Image& image, const elf::Image* alt,
                                                     SplitSource* split) {
  auto impl = std::make_unique<Impl>();
  impl->split = split;
  if (alt != nullptr) {
    auto opened = open_dwarf(*alt);
    if (!opened) return fail(opened.error());
    impl->alt = std::move(*opened);
  }
  auto opened = open_dwarf(image);
  if (!opened) return fail(opened.error());
  impl->main = std::move(*opened);
  const elf::Image& plain = *impl->main.image;
  impl->sections = {section_bytes(plain, ".debug_line"), section_bytes(plain, ".debug_line_str"),
                    section_bytes(plain, ".debug_str")};
  impl->address_sections = {section_bytes(plain, ".debug_addr"),
                            section_bytes(plain, ".debug_ranges"),
                            section_bytes(plain, ".debug_rnglists"),
                            {}};
  for (const elf::Image* file : {&plain, alt != nullptr ? impl->alt.image : nullptr}) {
    if (file == nullptr) continue;
    for (const char* name : {".debug_str", ".debug_line_str", ".debug_info", ".debug_types"})
      if (const auto bytes = section_bytes(*file, name); !bytes.empty()) impl->address_sections.texts.push_back(bytes);
  }
  // If none is set, libdw searches for the file that a .gnu_debugaltlink names, and opens it: so each file gets one.
  // dwz does not chain them.
  Dwarf* const shared = alt != nullptr ? impl->alt.dwarf.get() : impl->main.dwarf.get();
  dwarf_setalt(impl->main.dwarf.get(), shared);
  dwarf_setalt(shared, shared);
  return std::unique_ptr<DwarfLines>(new DwarfLines(std::move(impl)));
}

// Uses .debug_aranges first, which is sorted; addresses missing there (clang writes none) are found by the ranges of
// each unit.
std::vector<Unit> DwarfLines::Impl::units_of(std::span<const Vaddr> addresses, DeadlineCheck& deadline) const {
  Dwarf* dwarf = main.dwarf.get();
  std::map<Dwarf_Off, Unit> units;
  const auto put = [&](Dwarf_Die& die, std::size_t i) {
    Unit& unit = units[dwarf_dieoffset(&die)];
    unit.die = die;
    unit.members.push_back(i);
  };
  std::vector<std::size_t> missing;
  Dwarf_Aranges* aranges = nullptr;
  std::size_t count = 0;
  if (dwarf_getaranges(dwarf, &aranges, &count) != 0) count = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    Dwarf_Die die;
    Dwarf_Off offset = 0;
    Dwarf_Addr start = 0;
    Dwarf_Word length = 0;
    Dwarf_Arange* range = count == 0 ? nullptr : dwarf_getarange_addr(aranges, addresses[i]);
    // libdw may also find an empty range (of a function that was folded into another one), which belongs to another
    // unit.
    if (range != nullptr && dwarf_getarangeinfo(range, &start, &length, &offset) == 0 &&
        addresses[i] - start < length && dwarf_offdie(dwarf, offset, &die) != nullptr) {
      put(die, i);
    } else {
      missing.push_back(i);
    }
  }

  Dwarf_CU* unit = nullptr;
  Dwarf_Die die;
  // Does not ask for the split unit's entry: libdw would then open the .dwo path that the file names.
  while (!missing.empty() && !deadline.passed() &&
         dwarf_get_units(dwarf, unit, &unit, nullptr, nullptr, &die, nullptr) == 0) {
    const DwarfUnit of_die(die, address_sections);
    RangeReader ranges = of_die.ranges(die);
    std::vector<std::size_t> found = places_in_ranges(ranges, deadline, missing.size(),
                                                      [&](std::size_t place) { return addresses[missing[place]]; });
    if (found.empty()) continue;
    for (std::size_t& i : found) i = missing[i];
    for (const std::size_t i : found) put(die, i);
    std::vector<std::size_t> left;
    std::set_difference(missing.begin(), missing.end(), found.begin(), found.end(), std::back_inserter(left));
    missing = std::move(left);
  }

  std::vector<Unit> all;
  for (auto& [offset, one] : units) {
    std::sort(one.members.begin(), one.members.end());
    all.push_back(std::move(one));
  }
  return all;
}

std::optional<LineProgram> DwarfLines::Impl::lines_of(DwarfUnit& unit) const {
  const auto offset = DwarfUnit::number(unit.die(), DW_AT_stmt_list);
  if (!offset) return std::nullopt;
  Dwarf_Attribute attribute;
  std::optional<std::string_view> directory;
  if (dwarf_attr(&unit.die(), DW_AT_comp_dir, &attribute) != nullptr) directory = unit.text(attribute);
  return LineProgram::parse(sections, *offset, directory.value_or(""));
}

// libdw would search for the file of a split unit itself, by the path that the skeleton names. Instead it gets the
// unit's entries as a file of their own, and DwarfUnit has the rest.
std::optional<SplitUnit> DwarfLines::Impl::split_unit_of(DwarfUnit& unit, DeadlineCheck& deadline) const {
  constexpr std::uint64_t kMaxOfUnit = std::uint64_t{512} << 20;  // Chromium's largest have 60 MB
  constexpr std::uint64_t kMaxCopied = std::uint64_t{4} << 30;    // for one file, one unit at a time
  if (split == nullptr) return std::nullopt;
  const auto name = unit.split_name();
  if (!name) return std::nullopt;
  std::optional<SplitUnit> found;
  split->find(*name, [&](const SplitFile& file) {
    const auto own = file.sections_of(name->id);
    if (!own) return false;
    const std::uint64_t size = own->info.size() + own->abbrev.size();
    if (size > kMaxOfUnit || size > kMaxCopied - copied) return false;
    copied += size;
    DebugElf elf;
    elf.add(".debug_info", own->info.size());
    elf.add(".debug_abbrev", own->abbrev.size());
    elf.lay_out(ET_REL);
    std::copy(own->info.begin(), own->info.end(), elf.contents(0).begin());
    std::copy(own->abbrev.begin(), own->abbrev.end(), elf.contents(1).begin());
    auto image = elf::Image::from_bytes(elf.take(), file.image().name());
    if (!image) return false;
    auto dwarf = open_dwarf(**image);
    if (!dwarf) return false;
    const auto die = unit_with_id(dwarf->dwarf.get(), name->id, deadline);
    if (!die) return false;
    const auto entries = section_bytes(*dwarf->image, ".debug_info");
    found = SplitUnit{std::move(*image), std::move(*dwarf), *die, *own, entries};
    return true;
  });
  return found;
}

std::vector<std::vector<DwarfFrame>> DwarfLines::resolve(std::span<const Vaddr> addresses, bool functions,
                                                         DeadlineCheck& deadline, bool& too_much_text) const {
  std::vector<std::vector<DwarfFrame>> frames(addresses.size());
  std::size_t text_left = kMaxText;
  const auto take_text = [&](const DwarfFrame& frame) {
    const std::size_t size = (frame.function ? frame.function->size() : 0) + (frame.file ? frame.file->size() : 0);
    text_left -= std::min(size, text_left);
    too_much_text = text_left == 0;
    return !too_much_text;
  };
  for (Unit& unit : impl_->units_of(addresses, deadline)) {
    if (deadline.passed()) break;
    std::vector<Vaddr> inside;
    for (const std::size_t i : unit.members) inside.push_back(addresses[i]);
    std::vector<ScopeChain> scopes(inside.size());
    DwarfUnit own(unit.die, impl_->address_sections);
    std::optional<SplitUnit> split;
    if (functions) split = impl_->split_unit_of(own, deadline);
    DwarfUnit whole = split ? DwarfUnit(split->die, own, split->sections, split->entries) : own;
    if (functions) scopes = find_scopes(whole, inside, deadline);

    const auto lines = impl_->lines_of(own);
    std::vector<std::optional<LineRow>> rows(inside.size());
    if (lines) rows = lines->find(inside, deadline);

    for (std::size_t n = 0; n < inside.size() && text_left > 0 && !deadline.passed(); ++n) {
      std::vector<DwarfFrame>& out = frames[unit.members[n]];
      // The place in the current frame: first from the line table, then that of the call.
      DwarfFrame place;
      if (rows[n]) {
        place.file = lines->path(rows[n]->file);
        place.line = to_line(rows[n]->line);
      }
      for (auto scope = scopes[n].rbegin(); scope != scopes[n].rend(); ++scope) {
        place.function = function_name(whole, *scope);
        if (!take_text(place)) break;
        out.push_back(std::move(place));
        place = {};
        const auto call_file = DwarfUnit::number(*scope, DW_AT_call_file);
        if (call_file && lines) place.file = lines->path(*call_file);
        place.line = to_line(DwarfUnit::number(*scope, DW_AT_call_line));
      }
      if (scopes[n].empty() && place.file) out.push_back(std::move(place));
    }
  }
  return frames;
}

bool has_dwarf(const elf::Image& image) {
  for (const char* name : {".debug_info", ".zdebug_info"}) {
    const elf::Section* section = image.section(name);
    if (section != nullptr && !image.contents(*section).empty()) return true;
  }
  return false;
}

}  // namespace rankstacks::symbolizers
