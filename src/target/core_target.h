// A core file as a Target: mapped, never read whole.
//
// Pages that the core lacks come from the module's file when its build-id equals the one in the core. What is wrong with the core (cut off,
// damaged notes, refused files) is in problems(); what can be read is read all the same.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "elf/image.h"
#include "model/snapshot.h"
#include "target/target.h"

namespace rankstacks {

struct CoreOptions {
  std::string executable;                 // --exe: used for the main program instead of the path in the core (build-id still checked)
  std::string sysroot;                    // --sysroot: tried as prefix of every path in the core, before the path itself
  std::vector<std::string> search;        // --search: directories tried by base name and as .build-id trees, in order
};

class CoreTarget final : public Target {
 public:
  // Opens plain and .zst/.lz4/.xz/.gz cores (told by their first bytes, not by name; unpacked to an unlinked sparse file in $TMPDIR).
  // At the deadline what is not known by then (modules, their files) is left out, and said in problems().
  // Errors: the file is no core that can be used at all. A cut or damaged core that still has something opens, with problems().
  static Result<std::unique_ptr<CoreTarget>> open(const std::string& path, const CoreOptions& options, elf::ImageCache& images,
                                                  const Deadline& deadline = Deadline::never());
  ~CoreTarget() override;

  const std::string& subject() const override;
  std::span<const ThreadInfo> threads() const override;     // in the order of the notes; the first is the one that took the signal in kernel cores
  std::span<const Mapping> mappings() const override;
  const ModuleMap& modules() const override;
  std::size_t read(Address address, std::span<std::byte> into) const noexcept override;
  std::vector<Problem> damage() const override;

  Pid pid() const;                                          // NT_PRPSINFO, else the main thread's
  std::optional<Pid> parent() const;                        // NT_PRPSINFO
  const std::optional<SignalInfo>& signal() const;
  const std::string& executable() const;                    // by AT_PHDR/AT_ENTRY's mapping in NT_FILE, else NT_PRPSINFO's name
  const std::vector<std::string>& command() const;          // from the stack's argument block, else NT_PRPSINFO's pr_psargs
  const std::map<std::string, std::string>& environment() const;   // the initial block at the top of the main stack; may be empty
  std::optional<std::uint64_t> auxv(std::uint64_t type) const;     // AT_*
  const std::vector<Problem>& problems() const;
  std::span<const Tid> lost_stacks() const;  // threads whose stacks gcore has left out, which is in problems()
  bool partial() const;                                     // something that belongs to the core could not be read

 private:
  struct Impl;
  explicit CoreTarget(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rankstacks
