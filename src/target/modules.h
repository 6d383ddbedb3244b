// Which ELF file lies where in a target.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "elf/image.h"

namespace rankstacks::target {

// One line of /proc/PID/maps, of NT_FILE, or of a fake.
struct Mapping {
  Range range;
  std::uint64_t file_offset = 0;
  // "" if anonymous; "[stack]", "[vdso]", "[heap]" as the kernel names them; without " (deleted)".
  std::string path;
  bool readable = false, writable = false, executable = false;
  bool deleted = false;
  std::uint64_t device = 0, inode = 0;  // 0 in cores
};

// One file as loaded. runtime address = vaddr + bias.
struct Module {
  std::string path;  // as the target names it, or "[vdso]"
  Range range;       // from its first to its last mapping
  Address bias = 0;  // 0 for ET_EXEC; wraps, so subtract with unsigned arithmetic
  // From the target's memory (core) or from the mapped file (live); empty: unknown.
  BuildId build_id;
  std::shared_ptr<const elf::Image> image;  // nullptr: no file can be used, and frames are shown as module+0xoffset
  std::string why_no_image;                 // the reason for that, one line

  Vaddr to_vaddr(Address a) const { return a - bias; }
  Address to_address(Vaddr v) const { return v + bias; }
};

// Sorted, non-overlapping; built once by the target.
class ModuleMap {
 public:
  ModuleMap() = default;
  explicit ModuleMap(std::vector<Module> modules);  // sorts by start

  // The module with `a` between its first and its last mapping, or nullptr. Logarithmic.
  const Module* find(Address a) const;
  const std::vector<Module>& all() const { return modules_; }

 private:
  std::vector<Module> modules_;
};

}  // namespace rankstacks::target
