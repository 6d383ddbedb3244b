// Files below a directory that is the root of another process, or of an unpacked system: "/etc/os-release" there may be
// a symbolic link to an absolute path, or to "../..", and must not lead out of it.
//
// The kernel resolves the whole path below the root (openat2(2), RESOLVE_IN_ROOT, Linux 5.6). On an older kernel, and
// where a filter of system calls refuses that one, the names are followed here, one by one, and each link by its text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/regular_file.h"

namespace rankstacks {
inline namespace base {

class RootDirectory {
 public:
  // "/proc/4711/root", "/", a sysroot. std::nullopt if it cannot be opened.
  static std::optional<RootDirectory> open(const std::string& path);

  // Device and inode: what distinguishes it from other roots of one mount namespace.
  std::pair<std::uint64_t, std::uint64_t> identity() const { return identity_; }

  // What the path leads to, as an O_PATH descriptor; not open, with errno, if there is no such file.
  FileDescriptor place(const std::string& path) const;

  bool has(const std::string& path) const;

  // The first `most` bytes of a regular file (regular_file.h); std::nullopt if there is no such file.
  std::optional<std::string> read(const std::string& path, std::size_t most) const;

  // The names in a directory, in its own order, at most `most` of them; empty if there is no such directory.
  std::vector<std::string> names(const std::string& path, std::size_t most) const;

 private:
  FileDescriptor open_below(const std::string& path, int flags) const;

  FileDescriptor root_;
  std::pair<std::uint64_t, std::uint64_t> identity_;
};

// The way that needs no openat2(): each name is looked up in the directory that was reached, and ".." leads back to the
// directory that this one was reached from, and never out of the root. For O_PATH descriptors.
FileDescriptor walk_below(const FileDescriptor& root, const std::string& path);

}  // namespace base
}  // namespace rankstacks
