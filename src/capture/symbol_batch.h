// The symbols of all ranks, looked up together.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/rank_stacks.h"
#include "symbolizers/symbolizer.h"

namespace rankstacks::capture {

// All addresses of all ranks, by file. A file is identified by its build-id if it has one, so that copies of one
// library count once.
class SymbolBatch {
 public:
  void add(const RankStacks& rank);
  // Resolves the files in parallel, each with this much time. `libc_lines`: also the lines and inlined functions of the
  // C library itself. Of Debian's libc6-dbg 8 MB are unpacked for them, a quarter of the work of a look.
  void resolve(const symbolizers::SymbolizerOptions& options, bool libc_lines,
               Deadline::Clock::duration timeout = Deadline::Clock::duration::max());
  bool gave_up(const target::Module& module) const;  // whether the lookup in its file took too long
  // The locations of the address in the module's image; nullptr if it was not added, or if the module has no image.
  const std::vector<symbolizers::SourceLocation>* find(const target::Module& module, Vaddr vaddr) const;
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct File {
    std::shared_ptr<const elf::Image> image;
    std::vector<Vaddr> addresses;
    std::vector<const small_core::ModuleSymbols*> noted;  // of the captures, one each; their ranks own them
    symbolizers::SymbolizedImage symbols;
  };
  static std::string key(const elf::Image& image);
  static void add_noted(File& file);

  std::map<std::string, File> files_;
  // Keys: images of the ranks' targets, which outlive the batch. Values: entries of files_.
  std::unordered_map<const elf::Image*, File*> by_image_;
  std::vector<std::string> problems_;
};

}  // namespace rankstacks::capture
