// Finds the debug information of an image: the separate file that it names by build-id or .gnu_debuglink, the file that
// dwz moved shared parts to, the small symbol table in .gnu_debugdata.
//
// Each file is checked before it is used: a file of another build would give wrong names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "elf/image.h"
#include "symbolizers/split_file.h"
#include "symbolizers/symbolizer.h"

namespace rankstacks::symbolizers {

class DebugFiles {
 public:
  // Borrows `options` and `problems`. Refusals are added to `problems`. `until`: long work is given up then.
  DebugFiles(const SymbolizerOptions& options, std::vector<std::string>& problems,
             const Deadline& until = Deadline::never())
      : options_(options), problems_(problems), until_(until) {}

  // By build-id under the debug directories, then by .gnu_debuglink, then by debuginfod; nullptr if there is none, or
  // it was refused.
  std::shared_ptr<const elf::Image> separate_file(const elf::Image& image);

  // The file of .gnu_debugaltlink in `image` (which may itself be a separate file): by build-id, then by the path
  // stated there, if that leads into the debug directories or stays below the directory of `image`.
  std::shared_ptr<const elf::Image> alt_file(const elf::Image& image);

  // The unpacked .gnu_debugdata: an ELF file with a .symtab of the functions that are missing in .dynsym.
  std::shared_ptr<const elf::Image> mini_debug_info(const elf::Image& image);

 private:
  friend class SplitFiles;
  std::vector<std::string> roots() const;
  std::shared_ptr<const elf::Image> by_link(const elf::Image& image);
  std::shared_ptr<const elf::Image> by_debuginfod(const BuildId& id, const std::string& wanted_by);
  std::shared_ptr<const elf::Image> by_build_id(const BuildId& id, const std::string& wanted_by);
  std::optional<std::uint32_t> crc_of(const elf::Image& file);
  Result<std::shared_ptr<const elf::Image>> open(const std::string& path) const;
  std::shared_ptr<const elf::Image> open_if_there(const std::string& path);
  bool accept_id(const elf::Image& found, const BuildId& wanted, const std::string& wanted_by, const char* kind);

  const SymbolizerOptions& options_;
  std::vector<std::string>& problems_;
  Deadline until_;
};

// The files with the split units of an image: FILE.dwp next to it, or in the places where debug links are searched for;
// then the .dwo of each unit.
//
// A unit names its .dwo by the path at compile time, and a hostile file can name any path. So the .dwo is searched for
// in the image's own directories, by the part of the path below the compiler's directory and by the name alone. At the
// named path itself, only a file that belongs to the image's owner is used: that user can read the file without this
// tool. In all of these files, a unit is accepted only by its id.
class SplitFiles : public SplitSource {
 public:
  // `stripped` is the file that the process runs, or `image` itself. `image` has the skeletons. All arguments are
  // borrowed.
  SplitFiles(DebugFiles& files, const elf::Image& image, const elf::Image& stripped);

  // The file that is passed to `use` lives until the next call.
  bool find(const DwarfUnit::SplitName& unit, const std::function<bool(const SplitFile&)>& use) override;

  // Adds a problem that names what was not found.
  void report_missing();

 private:
  using Refusals = std::vector<std::string>;
  std::shared_ptr<const SplitFile> open(const std::string& path, bool must_be_owners, Refusals& refusals);
  void find_package();

  DebugFiles& files_;
  const elf::Image& image_;
  const elf::Image& stripped_;
  std::vector<std::string> names_;  // the full names of both files
  std::vector<std::string> directories_;
  bool looked_for_package_ = false;
  std::shared_ptr<const SplitFile> package_;
  std::string current_path_;
  std::shared_ptr<const SplitFile> current_;  // the last .dwo: after link time optimization it has several units
  std::size_t missing_ = 0;
  std::string first_missing_;
  std::size_t reported_ = 0;  // number of refusals reported
};

}  // namespace rankstacks::symbolizers
