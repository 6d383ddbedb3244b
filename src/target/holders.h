// Which processes have something open: pipes, FIFOs, sockets, locks. All questions are registered first; then the
// descriptors of each process are scanned once, by the links in /proc/PID/fd. Nothing that a process has open is
// opened, and no file system is asked for more than the kernel has cached.
//
//     link "pipe:[12]", "socket:[13]"  ──┐
//     last name of a path              ──┴─> key ──> questions ──> holders
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"
#include "target/file_locks.h"

namespace rankstacks::target {

// The identity of an open file that has a name.
struct FileIdentity {
  dev_t device = 0;
  std::uint64_t inode = 0;
  bool is_fifo = false;
};
// From what the kernel has cached: no file server is asked (AT_STATX_DONT_SYNC).
std::optional<FileIdentity> identity_of(Pid pid, int fd);

// The last path component of a descriptor's link; mount namespaces differ in what precedes it.
std::string_view name_in(std::string_view link);

class Holders {
 public:
  using Question = std::size_t;
  Question who_has_socket(std::uint64_t inode);
  Question who_writes_pipe(std::string link) {
    return ask({.kind = Kind::kPipe, .key = std::move(link), .writing = true});
  }
  Question who_reads_pipe(std::string link) { return ask({.kind = Kind::kPipe, .key = std::move(link)}); }
  Question who_opened_fifo(std::string name, const FileIdentity& file, bool writing);
  Question who_has_lock(std::string name, const FileLock& lock);

  // In ascending order. Does not contain processes of `refused()` or those that were not scanned.
  const std::set<Pid>& of(Question question) const { return asked_[question].holders; }
  // Its holders are not searched for any more.
  void close(Question question) { asked_[question].open = false; }
  bool any_open() const;

  // How much is scanned, for all processes together.
  struct Budget {
    std::size_t processes, descriptors;  // processes without descriptors do not count
    DeadlineCheck time;
    bool over = false;  // some were left out
  };
  void look_through(Pid pid, Budget& budget);
  const std::set<Pid>& refused() const { return refused_; }  // those whose descriptors may not be read

 private:
  enum class Kind { kSocket, kPipe, kFifo, kLock };
  struct Asked {
    Kind kind;
    std::string key;
    bool writing = false;
    FileIdentity file = {};
    FileLock lock = {};
    bool open = true;
    std::set<Pid> holders = {};
  };
  Question ask(Asked asked);
  void compare(Pid pid, int fd, std::string_view link);
  static bool has(const Asked& asked, Pid pid, int fd);

  std::vector<Asked> asked_;
  std::unordered_map<std::string, std::vector<Question>> by_key_;
  std::set<Pid> refused_;
};

}  // namespace rankstacks::target
