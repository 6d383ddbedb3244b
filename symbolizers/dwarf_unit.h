// One compilation unit: its entries (libdw's), and what their attributes refer to in other sections, which libdw cannot
// combine if the unit is split.
//
//     the file, or its debug file                         a .dwo, or the unit's part of a .dwp (split_file.h)
//       .debug_info   skeleton unit --- dwo id ---------->  .debug_info.dwo, .debug_abbrev.dwo     the entries
//       .debug_addr  <--- from the skeleton's base on ----  DW_FORM_addrx, DW_FORM_GNU_addr_index
//       .debug_ranges <-- from the skeleton's base on ----  DW_AT_ranges of DWARF 4
//       .debug_line  <--- the skeleton's DW_AT_stmt_list -  DW_AT_call_file
//       low_pc       <--- what range lists begin from       .debug_rnglists.dwo, .debug_str_offsets.dwo, .debug_str.dwo
//
// A unit that is not split is read by the same code: all of these sections are then in its own file. This code opens no
// file.
#pragma once

#include <elfutils/libdw.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace rankstacks::symbolizers {

// Sections of a file with units that are not split, or with skeletons; decompressed, empty if the file does not have
// them.
struct AddressSections {
  std::span<const std::byte> addr;                // .debug_addr
  std::span<const std::byte> ranges;              // .debug_ranges, up to DWARF 4
  std::span<const std::byte> rnglists;            // .debug_rnglists
  std::vector<std::span<const std::byte>> texts;  // all that its strings can be in, the shared debug file's included
};

// Sections of one split unit.
struct SplitSections {
  std::span<const std::byte> info, abbrev, rnglists, str_offsets;
  std::span<const std::byte> str;  // for all units of the file
};

// The string that begins at `start`, if it begins and ends in one of the sections, and is no longer than any name.
std::optional<std::string_view> string_in(std::span<const std::span<const std::byte>> sections, const char* start);

class DwarfUnit;

// The ranges of one entry's code, one after the other. Borrows the unit.
class RangeReader {
 public:
  // Returns false at the end, and where the list breaks off. Skips empty ranges, and those of functions that the linker
  // dropped (at address 0, where no image has code).
  bool next(Vaddr& low, Vaddr& high);
  // Whether the entry has code, or a list of ranges saying that it has none.
  bool has_code() const { return kind_ != Kind::kNone; }

 private:
  friend class DwarfUnit;
  enum class Kind { kNone, kOne, kPairs, kCoded };
  std::optional<std::uint64_t> uleb();
  template <class T>
  std::optional<T> fixed();
  bool next_pair(Vaddr& low, Vaddr& high);
  bool next_coded(Vaddr& low, Vaddr& high);

  Kind kind_ = Kind::kNone;
  const DwarfUnit* unit_ = nullptr;
  std::span<const std::byte> list_;
  Vaddr base_ = 0;
  Vaddr low_ = 0, high_ = 0;              // kOne
  std::uint32_t entries_left_ = 1 << 20;  // bound for a list that does not end
};

class DwarfUnit {
 public:
  // A unit that is in the file itself; it may be a skeleton. The sections must outlive it.
  DwarfUnit(Dwarf_Die die, const AddressSections& sections);
  // The split unit `die` of `skeleton`; `entries` is the section that libdw has it from.
  DwarfUnit(Dwarf_Die die, const DwarfUnit& skeleton, const SplitSections& sections,
            std::span<const std::byte> entries);

  Dwarf_Die& die() { return die_; }

  RangeReader ranges(Dwarf_Die& entry) const;

  // The string of an attribute; std::nullopt if there is none, or it is longer than any name (kMaxName).
  std::optional<std::string_view> text(Dwarf_Attribute& attribute) const;
  static constexpr std::size_t kMaxName = 64 << 10;

  // An unsigned number of the entry itself.
  static std::optional<std::uint64_t> number(Dwarf_Die& entry, unsigned name);

  // For a skeleton: the id of the split unit and the path of its file, which is untrusted data. std::nullopt if this
  // unit is not a skeleton.
  struct SplitName {
    std::uint64_t id = 0;
    std::string path;       // DW_AT_dwo_name
    std::string directory;  // DW_AT_comp_dir, "" if there is none
  };
  std::optional<SplitName> split_name();

 private:
  friend class RangeReader;
  std::optional<Vaddr> address(Dwarf_Attribute& attribute) const;
  std::optional<Vaddr> indexed_address(std::uint64_t index) const;
  std::span<const std::byte> base_of(std::span<const std::byte> section, unsigned name, unsigned gnu_name);

  mutable Dwarf_Die die_;
  bool is_split_ = false;
  unsigned version_ = 0;
  unsigned offset_size_ = 4;  // 8: 64-bit DWARF
  Vaddr low_pc_ = 0;
  std::span<const std::byte> addr_;         // from the unit's base on
  std::span<const std::byte> pairs_;        // .debug_ranges; for a split unit from the base on
  std::span<const std::byte> rnglists_;     // from the table of offsets on
  std::span<const std::byte> coded_;        // .debug_rnglists
  std::span<const std::byte> split_pairs_;  // for a skeleton: `pairs_` of its split unit
  std::span<const std::byte> str_, str_offsets_;
  std::span<const std::byte> entries_;                 // of a split unit
  std::span<const std::span<const std::byte>> texts_;  // of one that is not split
};

}  // namespace rankstacks::symbolizers
