// A file of split debug information: a .dwo, which holds one unit (or a few), or a .dwp package, which holds the units
// of a whole program.
//
//     .debug_cu_index of a .dwp: dwo id -> row; a row gives the range of the unit's part of each section
//
//       columns    info            abbrev     str_offsets     ...
//       row 1      0x000 +0x1c0    0 +0x90    0x00 +0x28
//       row 2      0x1c0 +0x300    0x90 +..   0x28 +..
//
// Version 2 of the index is GNU's, for DWARF 4 (gcc.gnu.org/wiki/DebugFissionDWP); version 5 is DWARF 5's, 7.3.5.
//
// Everything in it is untrusted data: a part that is not within its section is ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "elf/image.h"
#include "symbolizers/dwarf_unit.h"

namespace rankstacks::symbolizers {

class SplitFile {
 public:
  // Fails if the file has no .debug_info.dwo, or its sections cannot be unpacked.
  static Result<std::shared_ptr<const SplitFile>> open(std::shared_ptr<const elf::Image> file);

  // The sections with the unit of this id. For a .dwo these are all its sections, whatever the id: its units have to be
  // examined.
  std::optional<SplitSections> sections_of(std::uint64_t id) const;

  const elf::Image& image() const { return *file_; }

 private:
  std::shared_ptr<const elf::Image> file_;
  std::shared_ptr<const elf::Image> unpacked_;  // if its sections are compressed
  SplitSections all_;
  std::span<const std::byte> index_;  // .debug_cu_index; empty: a .dwo
};

// Provides files of split debug information.
class SplitSource {
 public:
  virtual ~SplitSource() = default;
  // Calls `use` with each file that may have the unit, until one has it, in which case `use` returns true. Returns
  // false if none has it.
  virtual bool find(const DwarfUnit::SplitName& unit, const std::function<bool(const SplitFile&)>& use) = 0;
};

}  // namespace rankstacks::symbolizers
