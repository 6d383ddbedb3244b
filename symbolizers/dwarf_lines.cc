#include "symbolizers/dwarf_lines.h"

#include <algorithm>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <libelf.h>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include "symbolizers/line_program.h"
#include "symbolizers/scope_walk.h"
#include "symbolizers/symbolizer.h"
#include "symbolizers/unpack_debug.h"

namespace rankstacks {
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
  std::shared_ptr<const elf::Image> unpacked;   // where the file's own sections are compressed
  ElfHandle elf;        // borrows the bytes
  DwarfHandle dwarf;    // borrows the ELF handle
  const elf::Image* image = nullptr;
};

// libdw's own would exit with status 1.
__attribute__((noreturn)) void out_of_memory() {   // of the type, where clang leaves [[noreturn]] out of it
  if (const auto handler = std::get_new_handler()) handler();
  std::abort();
}

Result<OpenDwarf> open_dwarf(const elf::Image& image) {
  static std::once_flag version_set;
  std::call_once(version_set, [] { elf_version(EV_CURRENT); });
  OpenDwarf opened;
  opened.image = &image;
  if (has_packed_debug(image)) {
    auto unpacked = unpack_debug(image);
    if (!unpacked) return fail(unpacked.error());
    opened.unpacked = std::move(*unpacked);
    opened.image = opened.unpacked.get();
  }
  // libelf only reads the bytes it is given as long as nothing is compressed, and without a file it has nowhere to search from: no
  // debuginfod, no path that the file names.
  const auto bytes = opened.image->bytes();
  opened.elf.reset(elf_memory(const_cast<char*>(reinterpret_cast<const char*>(bytes.data())), bytes.size()));
  if (opened.elf != nullptr) opened.dwarf.reset(dwarf_begin_elf(opened.elf.get(), DWARF_C_READ, nullptr));
  if (opened.dwarf == nullptr) {
    const char* why = opened.elf == nullptr ? elf_errmsg(-1) : dwarf_errmsg(-1);
    return fail(Error{.code = ErrorCode::kMalformed, .subject = image.name(), .what = why, .where = {}, .os_errno = 0, .hint = {}});
  }
  dwarf_new_oom_handler(opened.dwarf.get(), out_of_memory);
  return opened;
}

std::span<const std::byte> section_bytes(const elf::Image& image, std::string_view name) {
  const elf::Section* section = image.section(name);
  return section == nullptr ? std::span<const std::byte>{} : image.contents(*section);
}

// A compilation unit and which of the addresses (by index, ascending) are in it.
struct Unit {
  Dwarf_Die die;
  std::vector<std::size_t> members;
};

std::optional<std::string> to_text(const char* text) {
  if (text == nullptr) return std::nullopt;
  return std::string(text);
}

// Names and paths of one file's frames: a broken file may give each of them the same text of megabytes.
constexpr std::size_t kMostText = 256 << 20;

std::optional<std::string> function_name(Dwarf_Die& die) {
  Dwarf_Attribute attribute;
  for (const unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    if (dwarf_attr_integrate(&die, name, &attribute) == nullptr) continue;
    if (const char* mangled = dwarf_formstring(&attribute)) return demangle(mangled);
  }
  return to_text(dwarf_diename(&die));
}

std::optional<Dwarf_Word> number_of(Dwarf_Die& die, unsigned name) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  if (dwarf_attr(&die, name, &attribute) == nullptr || dwarf_formudata(&attribute, &value) != 0) return std::nullopt;
  return value;
}

std::optional<int> to_line(std::optional<Dwarf_Word> number) {
  if (!number || *number == 0 || *number > 0x7fffffff) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace

struct DwarfLines::Impl {
  OpenDwarf alt;    // borrowed by `main`
  OpenDwarf main;
  LineSections sections;

  std::vector<Unit> units_of(std::span<const Vaddr> addresses, DeadlineCheck& deadline) const;
  std::optional<LineProgram> lines_of(Dwarf_Die& unit) const;
};

DwarfLines::DwarfLines(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DwarfLines::~DwarfLines() = default;

Result<std::unique_ptr<DwarfLines>> DwarfLines::open(const elf::Image& image, const elf::Image* alt) {
  auto impl = std::make_unique<Impl>();
  if (alt != nullptr) {
    auto opened = open_dwarf(*alt);
    if (!opened) return fail(opened.error());
    impl->alt = std::move(*opened);
  }
  auto opened = open_dwarf(image);
  if (!opened) return fail(opened.error());
  impl->main = std::move(*opened);
  const elf::Image& plain = *impl->main.image;
  impl->sections = {section_bytes(plain, ".debug_line"), section_bytes(plain, ".debug_line_str"), section_bytes(plain, ".debug_str")};
  if (alt != nullptr) dwarf_setalt(impl->main.dwarf.get(), impl->alt.dwarf.get());
  return std::unique_ptr<DwarfLines>(new DwarfLines(std::move(impl)));
}

// .debug_aranges first, which is sorted; what it lacks (clang writes none) by the ranges of each unit.
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
    // libdw also finds an empty range (of a function that another one was folded into), which is of another unit.
    if (range != nullptr && dwarf_getarangeinfo(range, &start, &length, &offset) == 0 && addresses[i] - start < length &&
        dwarf_offdie(dwarf, offset, &die) != nullptr) {
      put(die, i);
    } else {
      missing.push_back(i);
    }
  }

  Dwarf_CU* unit = nullptr;
  Dwarf_Die die;
  // Without a place for the split unit's entry: asking for that would make libdw open the .dwo path that the file names.
  while (!missing.empty() && !deadline.passed() && dwarf_get_units(dwarf, unit, &unit, nullptr, nullptr, &die, nullptr) == 0) {
    bool has_code = false;
    std::vector<std::size_t> found = places_in_ranges(die, deadline, missing.size(), [&](std::size_t place) { return addresses[missing[place]]; }, has_code);
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

std::optional<LineProgram> DwarfLines::Impl::lines_of(Dwarf_Die& unit) const {
  const auto offset = number_of(unit, DW_AT_stmt_list);
  if (!offset) return std::nullopt;
  Dwarf_Attribute attribute;
  const char* folder = nullptr;
  if (dwarf_attr(&unit, DW_AT_comp_dir, &attribute) != nullptr) folder = dwarf_formstring(&attribute);
  return LineProgram::parse(sections, *offset, folder == nullptr ? "" : folder);
}

std::vector<std::vector<DwarfFrame>> DwarfLines::resolve(std::span<const Vaddr> addresses, bool functions, DeadlineCheck& deadline, bool& too_much_text) const {
  std::vector<std::vector<DwarfFrame>> frames(addresses.size());
  std::size_t text_left = kMostText;
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
    if (functions) scopes = find_scopes(unit.die, inside, deadline);

    const auto lines = impl_->lines_of(unit.die);
    std::vector<std::optional<LineRow>> rows(inside.size());
    if (lines) rows = lines->find(inside, deadline);

    for (std::size_t n = 0; n < inside.size() && text_left > 0 && !deadline.passed(); ++n) {
      std::vector<DwarfFrame>& out = frames[unit.members[n]];
      DwarfFrame place;   // the place in the frame being looked at: at first the line table's, then that of the call
      if (rows[n]) {
        place.file = lines->path(rows[n]->file);
        place.line = to_line(rows[n]->line);
      }
      for (auto scope = scopes[n].rbegin(); scope != scopes[n].rend(); ++scope) {
        place.function = function_name(*scope);
        if (!take_text(place)) break;
        out.push_back(std::move(place));
        place = {};
        const auto call_file = number_of(*scope, DW_AT_call_file);
        if (call_file && lines) place.file = lines->path(*call_file);
        place.line = to_line(number_of(*scope, DW_AT_call_line));
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

}  // namespace rankstacks
