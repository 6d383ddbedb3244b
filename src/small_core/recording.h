// Records one process while it is analysed: every page that the analysis reads, and what other tools need besides, is
// what its small core holds.
//
//     LiveTarget:  Recording::of()  ->  capture(): read_more() while it is stopped  ->  unwound  ->  keep()
//     CoreTarget:  Recording::of()  ->  read_more()                                 ->  unwound  ->  keep()
//
// A process is stopped for the same walk as for a report, and for the reads of read_more(). All else is done on the
// copy. Stacks are kept from below the stack pointer to their ends, or as far as their frames reach.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "python/python.h"
#include "small_core/kept_process.h"
#include "target/core_target.h"
#include "target/live_target.h"
#include "target/read_pages.h"
#include "unwind/unwinder.h"

namespace rankstacks::small_core {

class Recording {
 public:
  // Both borrow the target until keep(), which reads it for the last time.
  static std::unique_ptr<Recording> of(target::LiveTarget& target, std::map<std::string, std::string> environment);
  static std::unique_ptr<Recording> of(target::CoreTarget& target);
  Recording(const Recording&) = delete;  // the target refers to it
  Recording& operator=(const Recording&) = delete;

  // `target`: the recorded one, or a limited view of it. The process may be paused.
  void read_more(const target::Target& target);

  void add_interpreters(std::span<const python::RuntimeCandidate> candidates);

  // Copies the pages. `stacks`: parallel to the target's threads. At most `most` bytes are kept: stacks first, then
  // what the analysis has read.
  void keep(std::span<const unwind::UnwoundStack> stacks, std::uint64_t most);

  // After keep().
  KeptProcess& kept() { return kept_; }

  static constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;

 private:
  Recording(target::Target& target, target::AuxiliaryVector auxv);

  target::Target& target_;
  const target::LiveTarget* live_ = nullptr;
  target::AuxiliaryVector auxv_;
  std::vector<Range> expected_;           // what read_more() will read, as far as it is known
  std::vector<target::NotedFile> files_;  // that are not in NT_FILE
  target::ReadPages pages_;
  KeptProcess kept_;
};

}  // namespace rankstacks::small_core
