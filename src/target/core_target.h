// A core file as a Target: mapped, never read as a whole.
//
// Pages that are missing in the core come from the module's file if its build-id equals the one in the core. problems()
// says what is wrong with the core (cut off, damaged notes, refused files); everything else is read all the same.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "elf/debuginfod.h"
#include "elf/image.h"
#include "model/missing_file.h"
#include "model/snapshot.h"
#include "target/core_file.h"
#include "target/initial_block.h"
#include "target/own_notes.h"
#include "target/target.h"

namespace rankstacks::target {

struct CoreOptions {
  // --exe: used for the main program instead of the path in the core (its build-id is still checked).
  std::string executable;
  // --sysroot: tried as a prefix of every path in the core, before the path itself.
  std::string sysroot;
  std::vector<std::string> search;  // --search: directories tried by ends of paths and as .build-id trees, in order
  // Of the only core, whose file has no memory (core-handler); nullptr: it has it.
  std::shared_ptr<LazyMemory> memory = nullptr;
  // Of the process that has this memory, which waits for the end of its core; 0: there is none.
  Pid dying = 0;
  std::optional<std::chrono::system_clock::time_point> died_at = {};  // with `dying`
  std::shared_ptr<elf::Debuginfod> debuginfod = nullptr;              // asked last; nullptr: not at all
};

class CoreTarget final : public Target {
 public:
  // Opens plain and .zst/.lz4/.xz/.gz cores (identified by their first bytes, not by name; of these what is needed is
  // unpacked to memory: packed_core.h). What is not known at the deadline (modules, their files) is left out, and
  // problems() says so. Errors: the file is not a core, or nothing in it can be used. A cut or damaged core with some
  // usable content opens, with problems().
  static Result<std::unique_ptr<CoreTarget>> open(const std::string& path, const CoreOptions& options,
                                                  elf::ImageCache& images,
                                                  const Deadline& deadline = Deadline::never());
  ~CoreTarget() override;

  const std::string& subject() const override;
  // In the order of the notes; in cores written by the kernel the first is the one that took the signal.
  std::span<const ThreadInfo> threads() const override;
  std::span<const Mapping> mappings() const override;
  const ModuleMap& modules() const override;
  std::size_t read(Address address, std::span<std::byte> into) const noexcept override;
  std::vector<Problem> damage() const override;

  Pid pid() const;                            // NT_PRPSINFO, else the main thread's
  std::optional<Pid> parent() const;          // NT_PRPSINFO
  std::optional<std::uint32_t> user() const;  // NT_PRPSINFO: the real user, as the core says
  const std::optional<SignalInfo>& signal() const;
  // By the mapping of AT_PHDR/AT_ENTRY in NT_FILE, else NT_PRPSINFO's name.
  const std::string& executable() const;
  // From the argument block on the stack, else NT_PRPSINFO's pr_psargs.
  const std::vector<std::string>& command() const;
  // From the initial block at the top of the main stack; may be empty.
  const std::map<std::string, std::string>& environment() const;
  std::optional<std::uint64_t> auxv(std::uint64_t type) const;  // AT_*
  const AuxiliaryVector& auxiliary_vector() const;
  const std::vector<Problem>& problems() const;
  const std::vector<MissingFile>& missing_files() const;  // by address
  std::span<const Tid> lost_stacks() const;               // threads whose stacks gcore left out, as problems() reports
  bool partial() const;                                   // something that belongs to the core could not be read
  const CoreFile& file() const;                           // its bytes, for what copies them
  const OwnNotes& own_notes() const;                      // those of a capture (own_notes.h)

 private:
  struct Impl;
  explicit CoreTarget(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rankstacks::target
