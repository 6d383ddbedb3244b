#include "symbolizers/dwarf_unit.h"

#include <dwarf.h>
#include <cstring>
#include <limits>

#include "elf/bytes.h"
#include "elf/leb128.h"

namespace rankstacks::symbolizers {
namespace {

// Reads the attribute's bytes as a number of another form than the attribute has. libdw checks that they are inside the
// unit. `code` is set to an attribute that is always a plain number, as libdw follows the references of other
// attributes into sections that a split unit lacks.
std::optional<std::uint64_t> as_number(Dwarf_Attribute attribute, unsigned form) {
  attribute.code = DW_AT_byte_size;
  attribute.form = form;
  Dwarf_Word value = 0;
  if (dwarf_formudata(&attribute, &value) != 0) return std::nullopt;
  return value;
}

// The index in forms like DW_FORM_addrx; std::nullopt for all other forms.
std::optional<std::uint64_t> index_of(const Dwarf_Attribute& attribute) {
  switch (attribute.form) {
    case DW_FORM_addrx:
    case DW_FORM_strx:
    case DW_FORM_rnglistx:
    case DW_FORM_GNU_addr_index:
    case DW_FORM_GNU_str_index: return as_number(attribute, DW_FORM_udata);
    case DW_FORM_addrx1:
    case DW_FORM_strx1: return as_number(attribute, DW_FORM_data1);
    case DW_FORM_addrx2:
    case DW_FORM_strx2: return as_number(attribute, DW_FORM_data2);
    case DW_FORM_addrx3:
    case DW_FORM_strx3: {
      // These are never the last bytes of a unit: more entries follow, or the zeros that end them.
      const auto four = as_number(attribute, DW_FORM_data4);
      return four ? std::optional(*four & 0xffffff) : std::nullopt;
    }
    case DW_FORM_addrx4:
    case DW_FORM_strx4: return as_number(attribute, DW_FORM_data4);
    default: return std::nullopt;
  }
}

std::optional<std::uint64_t> load_offset(std::span<const std::byte> bytes, std::uint64_t at, unsigned size) {
  if (size == 8) return elf::load<std::uint64_t>(bytes, at);
  return elf::load<std::uint32_t>(bytes, at);
}

std::optional<std::uint64_t> load_entry(std::span<const std::byte> table, std::uint64_t index, unsigned size) {
  if (index > table.size() / size) return std::nullopt;
  return load_offset(table, index * size, size);
}

// An offset into another section as it is in the file, without libdw's interpretation.
std::optional<std::uint64_t> raw_offset(const Dwarf_Attribute& attribute, unsigned offset_size) {
  switch (attribute.form) {
    case DW_FORM_data4:
    case DW_FORM_data8: return as_number(attribute, attribute.form);
    case DW_FORM_sec_offset:
    case DW_FORM_strp: return as_number(attribute, offset_size == 8 ? DW_FORM_data8 : DW_FORM_data4);
    default: return std::nullopt;
  }
}

std::span<const std::byte> from(std::span<const std::byte> bytes, std::uint64_t offset) {
  return elf::clip(bytes, offset, bytes.size());
}

// DWARF 5, 7.28 and 7.26: length, version, address and segment size, count of offsets; length, version, padding.
std::uint64_t rnglists_header(unsigned offset_size) { return offset_size == 8 ? 20 : 12; }
std::uint64_t str_offsets_header(unsigned offset_size) { return offset_size == 8 ? 16 : 8; }

std::optional<std::string_view> string_at(std::span<const std::byte> strings, std::uint64_t offset) {
  const auto bytes = elf::clip(strings, offset, DwarfUnit::kMaxName);
  const void* end = bytes.empty() ? nullptr : std::memchr(bytes.data(), 0, bytes.size());
  if (end == nullptr) return std::nullopt;
  const auto* start = reinterpret_cast<const char*>(bytes.data());
  return std::string_view(start, static_cast<std::size_t>(static_cast<const char*>(end) - start));
}

}  // namespace

std::optional<std::string_view> string_in(std::span<const std::span<const std::byte>> sections, const char* start) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(start);
  for (const auto section : sections) {
    const auto begin = reinterpret_cast<std::uintptr_t>(section.data());
    if (wanted >= begin && wanted - begin < section.size()) return string_at(section, wanted - begin);
  }
  return std::nullopt;
}

// The part of a section from the unit's base on, to which the unit's entries refer by offsets or indexes; the whole
// section if the unit names no base.
std::span<const std::byte> DwarfUnit::base_of(std::span<const std::byte> section, unsigned name, unsigned gnu_name) {
  if (section.empty()) return section;
  Dwarf_Attribute attribute;
  if ((name == 0 || dwarf_attr(&die_, name, &attribute) == nullptr) &&
      (gnu_name == 0 || dwarf_attr(&die_, gnu_name, &attribute) == nullptr)) {
    return section;
  }
  const auto base = raw_offset(attribute, offset_size_);
  return base ? from(section, *base) : std::span<const std::byte>{};
}

DwarfUnit::DwarfUnit(Dwarf_Die die, const AddressSections& sections)
    : die_(die), pairs_(sections.ranges), coded_(sections.rnglists), texts_(sections.texts) {
  Dwarf_Half version = 0;
  std::uint8_t offset_size = 4;
  // Does not ask for the split unit's entry: libdw would then open the path that the file names.
  dwarf_cu_info(die_.cu, &version, nullptr, nullptr, nullptr, nullptr, nullptr, &offset_size);
  version_ = version;
  offset_size_ = offset_size;
  addr_ = base_of(sections.addr, DW_AT_addr_base, DW_AT_GNU_addr_base);
  split_pairs_ = base_of(sections.ranges, 0, DW_AT_GNU_ranges_base);
  rnglists_ = base_of(coded_, DW_AT_rnglists_base, 0);
  if (rnglists_.data() == coded_.data()) rnglists_ = from(coded_, rnglists_header(offset_size_));
  Dwarf_Attribute low;
  if (dwarf_attr(&die_, DW_AT_low_pc, &low) != nullptr) low_pc_ = address(low).value_or(0);
}

DwarfUnit::DwarfUnit(Dwarf_Die die, const DwarfUnit& skeleton, const SplitSections& sections,
                     std::span<const std::byte> entries)
    : die_(die),
      is_split_(true),
      low_pc_(skeleton.low_pc_),
      addr_(skeleton.addr_),
      pairs_(skeleton.split_pairs_),
      coded_(sections.rnglists),
      str_(sections.str),
      str_offsets_(sections.str_offsets),
      entries_(entries) {
  Dwarf_Half version = 0;
  std::uint8_t offset_size = 4;
  dwarf_cu_info(die_.cu, &version, nullptr, nullptr, nullptr, nullptr, nullptr, &offset_size);
  version_ = version;
  offset_size_ = offset_size;
  rnglists_ = from(coded_, rnglists_header(offset_size_));
  if (version_ >= 5) str_offsets_ = from(str_offsets_, str_offsets_header(offset_size_));
}

std::optional<DwarfUnit::SplitName> DwarfUnit::split_name() {
  std::uint8_t type = 0;
  std::uint64_t id = 0;
  if (dwarf_cu_info(die_.cu, nullptr, &type, nullptr, nullptr, &id, nullptr, nullptr) != 0 || type != DW_UT_skeleton)
    return std::nullopt;
  SplitName name{.id = id, .path = {}, .directory = {}};
  Dwarf_Attribute attribute;
  if (dwarf_attr(&die_, DW_AT_dwo_name, &attribute) != nullptr ||
      dwarf_attr(&die_, DW_AT_GNU_dwo_name, &attribute) != nullptr) {
    name.path = text(attribute).value_or("");
  }
  if (dwarf_attr(&die_, DW_AT_comp_dir, &attribute) != nullptr) name.directory = text(attribute).value_or("");
  return name;
}

std::optional<Vaddr> DwarfUnit::indexed_address(std::uint64_t index) const {
  return load_entry(addr_, index, sizeof(Vaddr));
}

std::optional<Vaddr> DwarfUnit::address(Dwarf_Attribute& attribute) const {
  if (const auto index = index_of(attribute)) return indexed_address(*index);
  Dwarf_Addr address = 0;
  if (attribute.form != DW_FORM_addr || dwarf_formaddr(&attribute, &address) != 0) return std::nullopt;
  return address;
}

std::optional<std::uint64_t> DwarfUnit::number(Dwarf_Die& entry, unsigned name) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  if (dwarf_attr(&entry, name, &attribute) == nullptr || dwarf_formudata(&attribute, &value) != 0) return std::nullopt;
  return value;
}

std::optional<std::string_view> DwarfUnit::text(Dwarf_Attribute& attribute) const {
  if (is_split_) {
    if (const auto index = index_of(attribute)) {
      const auto offset = load_entry(str_offsets_, *index, offset_size_);
      return offset ? string_at(str_, *offset) : std::nullopt;
    }
    if (attribute.form == DW_FORM_strp) {
      const auto offset = raw_offset(attribute, offset_size_);
      return offset ? string_at(str_, *offset) : std::nullopt;
    }
  }
  // Of DW_FORM_string, libdw does not check that it ends.
  const char* text = dwarf_formstring(&attribute);
  if (text == nullptr) return std::nullopt;
  return string_in(is_split_ ? std::span(&entries_, 1) : texts_, text);
}

RangeReader DwarfUnit::ranges(Dwarf_Die& entry) const {
  RangeReader reader;
  reader.unit_ = this;
  Dwarf_Attribute attribute;
  if (dwarf_attr(&entry, DW_AT_high_pc, &attribute) != nullptr) {
    Dwarf_Attribute low_attribute;
    const auto low =
        dwarf_attr(&entry, DW_AT_low_pc, &low_attribute) != nullptr ? address(low_attribute) : std::nullopt;
    auto high = address(attribute);
    Dwarf_Word length = 0;
    // Since DWARF 4 it may be a length.
    if (low && !high && dwarf_formudata(&attribute, &length) == 0 && length <= std::numeric_limits<Vaddr>::max() - *low)
      high = *low + length;
    if (low && high) {
      reader.kind_ = RangeReader::Kind::kOne;
      reader.low_ = *low;
      reader.high_ = *high;
      return reader;
    }
  }
  if (dwarf_attr(&entry, DW_AT_ranges, &attribute) == nullptr) return reader;
  reader.base_ = low_pc_;
  if (version_ < 5) {
    const auto offset = raw_offset(attribute, offset_size_);
    if (!offset || *offset >= pairs_.size()) return reader;
    reader.kind_ = RangeReader::Kind::kPairs;
    reader.list_ = from(pairs_, *offset);
    return reader;
  }
  if (attribute.form == DW_FORM_rnglistx) {
    const auto index = index_of(attribute);
    const auto offset = index ? load_entry(rnglists_, *index, offset_size_) : std::nullopt;
    if (!offset || *offset >= rnglists_.size()) return reader;
    reader.list_ = from(rnglists_, *offset);
  } else {
    const auto offset = raw_offset(attribute, offset_size_);
    if (!offset || *offset >= coded_.size()) return reader;
    reader.list_ = from(coded_, *offset);
  }
  reader.kind_ = RangeReader::Kind::kCoded;
  return reader;
}

std::optional<std::uint64_t> RangeReader::uleb() {
  std::uint64_t at = 0;
  const auto value = elf::load_uleb(list_, at);
  list_ = list_.subspan(at);
  return value;
}

template <class T>
std::optional<T> RangeReader::fixed() {
  const auto value = elf::load<T>(list_, 0);
  if (value) list_ = list_.subspan(sizeof(T));
  return value;
}

bool RangeReader::next(Vaddr& low, Vaddr& high) {
  while (true) {
    switch (kind_) {
      case Kind::kNone: return false;
      case Kind::kOne:
        if (low_ == 0 || low_ >= high_) return false;
        low = low_;
        high = high_;
        low_ = 0;  // returned once
        return true;
      case Kind::kPairs:
        if (!next_pair(low, high)) return false;
        break;
      case Kind::kCoded:
        if (!next_coded(low, high)) return false;
        break;
    }
    if (low != 0 && low < high) return true;
  }
}

// DWARF 4, 2.17.3.
bool RangeReader::next_pair(Vaddr& low, Vaddr& high) {
  while (entries_left_-- > 0) {
    const auto begin = fixed<std::uint64_t>();
    const auto end = fixed<std::uint64_t>();
    if (!begin || !end || (*begin == 0 && *end == 0)) return false;
    if (*begin == std::numeric_limits<std::uint64_t>::max()) {
      base_ = *end;
      continue;
    }
    low = *begin + base_;
    high = *end + base_;
    return true;
  }
  entries_left_ = 0;
  return false;
}

// DWARF 5, 2.17.3. Reads one entry per call: one that only changes the base yields an empty range.
bool RangeReader::next_coded(Vaddr& low, Vaddr& high) {
  low = high = 0;
  if (entries_left_ == 0) return false;
  --entries_left_;
  const auto code = fixed<std::uint8_t>();
  if (!code) return false;
  const auto indexed = [&]() -> std::optional<Vaddr> {
    const auto index = uleb();
    return index ? unit_->indexed_address(*index) : std::nullopt;
  };
  std::optional<std::uint64_t> first, second;
  switch (*code) {
    case DW_RLE_base_addressx:
    case DW_RLE_base_address: {
      const auto base = *code == DW_RLE_base_addressx ? indexed() : fixed<std::uint64_t>();
      base_ = base.value_or(0);
      return base.has_value();
    }
    case DW_RLE_startx_endx:
      first = indexed();
      second = indexed();
      break;
    case DW_RLE_startx_length:
      first = indexed();
      second = uleb();
      if (first && second) *second += *first;
      break;
    case DW_RLE_offset_pair:
      first = uleb();
      second = uleb();
      if (first && second) {
        *first += base_;
        *second += base_;
      }
      break;
    case DW_RLE_start_end:
      first = fixed<std::uint64_t>();
      second = fixed<std::uint64_t>();
      break;
    case DW_RLE_start_length:
      first = fixed<std::uint64_t>();
      second = uleb();
      if (first && second) *second += *first;
      break;
    default:  // DW_RLE_end_of_list, and unknown entries
      return false;
  }
  if (!first || !second) return false;
  low = *first;
  high = *second;
  return true;
}

}  // namespace rankstacks::symbolizers
