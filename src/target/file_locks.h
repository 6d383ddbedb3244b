// Locks of files as the kernel lists them: /proc/locks, and the lines "lock:" of /proc/PID/fdinfo/N. Format: proc(5), fs/locks.c.
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

namespace rankstacks {

struct FileLock {
  enum class Kind { kFlock, kRecord, kOpenFile };   // flock(2), fcntl(2) of a process, fcntl(2) of an open file description
  Kind kind = Kind::kFlock;
  bool waits = false;
  bool exclusive = false;
  Pid pid = 0;                          // who asked for it; -1: of an open file description; 0: of another pid namespace
  std::string file;                     // the file system's device and the inode, "fe:00:10952738"
  std::uint64_t first = 0, last = 0;    // bytes, both included
  bool operator==(const FileLock&) const = default;
};

// Of its file.
std::optional<std::uint64_t> inode_of(const FileLock& lock);

// Nothing: the line is none, or of another kind (leases).
std::optional<FileLock> parse_file_lock(std::string_view line);
std::vector<FileLock> parse_file_locks(std::string_view text);

// Those for which a call of this process waits. Empty: none, or it cannot be told which file's; `inode` is that of the call's file, where it is known.
// Locks of open file descriptions name no process and are told by the inode alone.
std::vector<FileLock> awaited_locks(const std::vector<FileLock>& all, FileLock::Kind kind, Pid pid, std::optional<std::uint64_t> inode);

// The held locks that are in the way of these.
std::vector<FileLock> locks_in_the_way(const std::vector<FileLock>& all, const std::vector<FileLock>& awaited);

}  // namespace rankstacks
