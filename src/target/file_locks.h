// File locks as the kernel lists them: /proc/locks, and the "lock:" lines of /proc/PID/fdinfo/N. Format: proc(5),
// fs/locks.c.
//
//     1: FLOCK  ADVISORY  WRITE 4711 fe:00:10952738 0 EOF       held by process 4711
//     1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:10952738 0 EOF    process 4712 waits for it
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace rankstacks::target {

struct FileLock {
  enum class Kind {
    kFlock,
    kRecord,
    kOpenFile
  };  // flock(2), fcntl(2) of a process, fcntl(2) of an open file description
  Kind kind = Kind::kFlock;
  bool waits = false;
  bool exclusive = false;
  // The process that requested it; -1: an open file description; 0: a process in another pid namespace.
  Pid pid = 0;
  std::string file;                   // the device of the file system and the inode, "fe:00:10952738"
  std::uint64_t first = 0, last = 0;  // bytes, both inclusive
  bool operator==(const FileLock&) const = default;
};

// The inode of the locked file.
std::optional<std::uint64_t> inode_of(const FileLock& lock);

// std::nullopt if the line is not a lock, or one of another kind (leases).
std::optional<FileLock> parse_file_lock(std::string_view line);
std::vector<FileLock> parse_file_locks(std::string_view text);

// The locks for which a call of this process waits. Empty if there is none, or if it is unknown on which file. `inode`
// is the inode of the call's file, if known. Locks of open file descriptions name no process and are identified by the
// inode alone.
std::vector<FileLock> awaited_locks(const std::vector<FileLock>& all, FileLock::Kind kind, Pid pid,
                                    std::optional<std::uint64_t> inode);

// The held locks that conflict with these.
std::vector<FileLock> locks_in_the_way(const std::vector<FileLock>& all, const std::vector<FileLock>& awaited);

}  // namespace rankstacks::target
