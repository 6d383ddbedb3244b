// Files, lines and inlined functions from DWARF, for a batch of addresses: each compilation unit is looked at once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "elf/image.h"
#include "symbolizers/split_file.h"

namespace rankstacks {

// A function at an address, or one that is inlined there. Its file and line are where in it the address is.
struct DwarfFrame {
  std::optional<std::string> function;   // as DWARF names it, demangled; nothing: only the line is known
  std::optional<std::string> file;
  std::optional<int> line;               // nothing: unknown, or code that has no line (DWARF's line 0)
};

// Not for use by several threads at once: libdw keeps what it has read in its handles.
class DwarfLines {
 public:
  // `image` has a .debug_info, and `alt` (or nullptr) is the file that dwz moved shared parts of it to. `split` (or
  // nullptr) finds the files that its split units are in. All must outlive the result. Fails where it is broken or
  // libdw cannot use it.
  static Result<std::unique_ptr<DwarfLines>> open(const elf::Image& image, const elf::Image* alt,
                                                  SplitSource* split = nullptr);
  ~DwarfLines();

  // Parallel to `addresses` (sorted, unique): innermost first, the last is the function itself; empty where nothing is known. Without
  // `functions`: at most one each, with file and line alone. At the deadline the units that are left are left out, and
  // where names and paths have more than 256 MiB in all, which sets `too_much_text`.
  std::vector<std::vector<DwarfFrame>> resolve(std::span<const Vaddr> addresses, bool functions, DeadlineCheck& deadline, bool& too_much_text) const;

 private:
  struct Impl;
  explicit DwarfLines(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

bool has_dwarf(const elf::Image& image);

}  // namespace rankstacks
