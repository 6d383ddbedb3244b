// The modules of a core: which ELF file was loaded where, according to NT_FILE and the ELF headers in the core's
// memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "model/missing_file.h"
#include "model/snapshot.h"
#include "target/core_file.h"
#include "target/core_images.h"
#include "target/core_notes.h"
#include "target/modules.h"

namespace rankstacks::target {

// Memory that is missing in the core but present in a module's file: mapped from it read-only, never written by the
// loader.
struct FileBackedRange {
  Range range;
  std::span<const std::byte> bytes;  // bytes of the image from range.start on; may be shorter than the range
};

struct CoreModules {
  std::vector<Module> modules;               // by address, without overlaps
  std::vector<Mapping> mappings;             // by address: those of NT_FILE, and the other memory in PT_LOADs
  std::vector<FileBackedRange> file_backed;  // by address, without overlaps; lives as long as the modules' images
  std::vector<Problem> problems;
  std::vector<MissingFile> missing;
  bool gave_up = false;  // the deadline passed: modules are missing
};

CoreModules find_core_modules(const CoreFile& core, const CoreNotes& notes, CoreImages& images,
                              const Deadline& deadline = Deadline::never());

}  // namespace rankstacks::target
