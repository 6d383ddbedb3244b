// Where the debug information of an image is: the separate file it names by build-id or .gnu_debuglink, the file that dwz shared
// parts into, the small symbol table in .gnu_debugdata.
//
// What is found is checked before it is used: a file of another build would give wrong names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "elf/image.h"
#include "symbolizers/symbolizer.h"

namespace rankstacks {

class DebugFiles {
 public:
  // Both are borrowed. Refusals are added to `problems`. `until`: what takes long is given up then.
  DebugFiles(const SymbolizerOptions& options, std::vector<std::string>& problems, const Deadline& until = Deadline::never())
      : options_(options), problems_(problems), until_(until) {}

  // By build-id under the debug directories, then by .gnu_debuglink; nullptr: there is none, or it was refused.
  std::shared_ptr<const elf::Image> separate_file(const elf::Image& image);

  // The file of .gnu_debugaltlink in `image` (which may itself be a separate file).
  std::shared_ptr<const elf::Image> alt_file(const elf::Image& image);

  // .gnu_debugdata unpacked: an ELF file with a .symtab of the functions that .dynsym lacks.
  std::shared_ptr<const elf::Image> mini_debug_info(const elf::Image& image);

 private:
  std::vector<std::string> roots() const;
  std::shared_ptr<const elf::Image> by_build_id(const BuildId& id, const std::string& wanted_by);
  std::optional<std::uint32_t> crc_of(const elf::Image& file);
  std::shared_ptr<const elf::Image> open_if_there(const std::string& path);
  bool accept_id(const elf::Image& found, const BuildId& wanted, const std::string& wanted_by, const char* kind);

  const SymbolizerOptions& options_;
  std::vector<std::string>& problems_;
  Deadline until_;
};

}  // namespace rankstacks
