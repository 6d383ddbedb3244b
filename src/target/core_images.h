// Finds the file of a module of a core on this machine, and refuses those that are not what was loaded.
//
// Tried in order: --exe (the main program), --sysroot + path, the path itself, each --search directory by base name and as a .build-id tree,
// /usr/lib/debug/.build-id. What decides is the build-id in the core's memory. A module that has none is compared by the bytes of its first
// mapping that are in the core. Where the core holds neither, the file is taken and named in a problem.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elf/image.h"
#include "model/snapshot.h"
#include "target/core_target.h"

namespace rankstacks {

// What the core tells of a module's file.
struct CoreModuleIdentity {
  std::string path;
  bool deleted = false;
  bool main_program = false;
  std::optional<BuildId> build_id;        // nothing: not dumped; empty: the file has none
  std::span<const std::byte> head;        // the file's first bytes, as far as they were dumped
};

struct FoundImage {
  std::shared_ptr<const elf::Image> image;
  std::string why_not;                    // one line, when there is none
};

class CoreImages {
 public:
  CoreImages(const CoreOptions& options, elf::ImageCache& cache) : options_(options), cache_(cache) {}

  FoundImage find(const CoreModuleIdentity& wanted);

  // What to report once all modules have been looked for: each refused file, and one problem each for missing and unverified ones.
  std::vector<Problem> problems() const;

 private:
  struct Candidate {
    std::string path;
    bool asked_for = false;   // --exe: refusing it is always said
  };
  std::vector<Candidate> candidates(const CoreModuleIdentity& wanted) const;

  const CoreOptions& options_;
  elf::ImageCache& cache_;
  std::vector<Problem> refused_;
  std::vector<std::string> missing_;
  std::vector<std::string> unverified_;
};

}  // namespace rankstacks
