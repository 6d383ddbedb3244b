// The files that running processes have mapped, each opened once for all of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "elf/image.h"
#include "model/problem.h"
#include "target/module_list.h"

namespace rankstacks::target {

// A file that a process has mapped, to be opened through that process.
struct FileToOpen {
  Pid pid = 0;
  Tid tid = 0;        // a thread whose /proc entries and memory can be read
  FileMappings file;  // its first mapping states the inode
};

// The ELF files of the processes on this machine. A mapped inode stays the same file as long as some process maps it,
// so (device, inode) identifies it across processes. Thread-safe; copies share their contents. Failures to open a file
// are kept too, except kGone: then the process through which it was tried has ended, and another one may still map the
// file.
class LiveImages {
 public:
  using Opened = Result<std::shared_ptr<const elf::Image>>;
  LiveImages();

  // The cached result if there is one; else calls open(), on this thread and without holding a lock, as it may never
  // return.
  Opened find_or(std::uint64_t device, std::uint64_t inode, const std::function<Opened()>& open);
  // Those that have not been opened; of several mappings of one file, the first.
  std::vector<const FileMappings*> unknown_among(std::span<const FileMappings> files) const;

  // Opens the file and caches the result or the error. Returns a problem if the user should know something about how
  // its names are found.
  std::optional<Problem> open(const FileToOpen& wanted, const Deadline& deadline = Deadline::never());

  // The file did not answer in time: no thread is to wait for it again, nor for other files on its device.
  void give_up(const FileToOpen& wanted);

 private:
  struct Shared;
  Opened open_mapped(const FileToOpen& wanted, const Deadline& deadline, std::optional<Problem>& problem);
  std::shared_ptr<Shared> shared_;
};

}  // namespace rankstacks::target
