// Finds the file of a core's module on this machine, and refuses files that are not the one that was loaded.
//
// Tried in order: --exe (for the main program), --sysroot + path, the path itself, below each --search directory the
// ends of the path from the longest to the base name (so that it may be another machine's root, a conda environment, a
// directory of wheels or of single files) and a .build-id tree, /usr/lib/debug/.build-id, debuginfod. A file is
// accepted if it has the build-id that is in the core's memory. A module without a build-id is compared by the bytes of
// its first mapping that are in the core. If the core has neither, the file is used and named in a problem.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elf/image.h"
#include "model/missing_file.h"
#include "model/snapshot.h"
#include "target/core_target.h"

namespace rankstacks::target {

// What the core says about a module's file.
struct CoreModuleIdentity {
  std::string path;
  bool deleted = false;
  bool main_program = false;
  std::optional<BuildId> build_id;  // std::nullopt: not dumped; empty: the file has none
  std::span<const std::byte> head;  // the first bytes of the file, as far as they were dumped
};

struct FoundImage {
  std::shared_ptr<const elf::Image> image;
  std::string why_not;  // one line, if there is no image
};

class CoreImages {
 public:
  CoreImages(const CoreOptions& options, elf::ImageCache& cache) : options_(options), cache_(cache) {}

  FoundImage find(const CoreModuleIdentity& wanted);

  // The problems to report after all modules were searched for: one for each refused file, and one each for all missing
  // and all unverified files.
  std::vector<Problem> problems() const;

  // Their packages and frames are not known yet.
  const std::vector<MissingFile>& missing() const { return missing_; }

 private:
  struct Candidate {
    std::string path;
    bool asked_for = false;     // --exe: its refusal is always reported
    std::string below_sysroot;  // its path there; empty: it is not below the sysroot
  };
  std::vector<Candidate> candidates(const CoreModuleIdentity& wanted) const;
  Result<std::shared_ptr<const elf::Image>> open(const Candidate& candidate, const CoreModuleIdentity& wanted);

  const CoreOptions& options_;
  elf::ImageCache& cache_;
  std::vector<Problem> refused_;
  std::vector<MissingFile> missing_;
  std::vector<std::string> unverified_;
};

}  // namespace rankstacks::target
