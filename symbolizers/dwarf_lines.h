// Files, lines and inlined functions from DWARF, for a batch of addresses: each compilation unit is examined once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "elf/image.h"
#include "symbolizers/split_file.h"

namespace rankstacks::symbolizers {

// A function at an address, or one that is inlined there. Its file and line are those of the address within it.
struct DwarfFrame {
  std::optional<std::string> function;  // as DWARF names it, demangled; std::nullopt: only the line is known
  std::optional<std::string> file;
  std::optional<int> line;  // std::nullopt: unknown, or code without a line (DWARF's line 0)
};

// Not thread-safe: libdw caches what it has read in its handles.
class DwarfLines {
 public:
  // `image` has a .debug_info. `alt` (or nullptr) is the file to which dwz moved shared parts of it. `split` (or
  // nullptr) finds the files with its split units. All must outlive the result. Fails if the file is broken or libdw
  // cannot use it.
  static Result<std::unique_ptr<DwarfLines>> open(const elf::Image& image, const elf::Image* alt,
                                                  SplitSource* split = nullptr);
  ~DwarfLines();

  // Parallel to `addresses` (sorted, unique): innermost first, the last one is the function itself; empty if nothing is
  // known. Without `functions`: at most one each, with file and line only. Leaves out the remaining units at the
  // deadline, and when names and paths have more than 256 MiB in total, which sets `too_much_text`.
  std::vector<std::vector<DwarfFrame>> resolve(std::span<const Vaddr> addresses, bool functions,
                                               DeadlineCheck& deadline, bool& too_much_text) const;

 private:
  struct Impl;
  explicit DwarfLines(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

bool has_dwarf(const elf::Image& image);

}  // namespace rankstacks::symbolizers
