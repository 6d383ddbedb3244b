// Files below a directory that is the root of another process, or of an unpacked system: "/etc/os-release" there may be
// a symbolic link to an absolute path, or to "../..", and must not lead out of it.
//
// The kernel resolves the whole path below the root (openat2(2), RESOLVE_IN_ROOT, Linux 5.6). On an older kernel a root
// that is the tool's own is used by plain paths, and of any other root nothing is opened.
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

  bool has(const std::string& path) const;

  // The first `most` bytes of a regular file (regular_file.h); std::nullopt if there is no such file.
  std::optional<std::string> read(const std::string& path, std::size_t most) const;

  // The names in a directory, in its own order, at most `most` of them; empty if there is no such directory.
  std::vector<std::string> names(const std::string& path, std::size_t most) const;

 private:
  FileDescriptor open_below(const std::string& path, int flags) const;

  FileDescriptor root_;
  std::pair<std::uint64_t, std::uint64_t> identity_;
  bool is_own_ = false;
};

}  // namespace base
}  // namespace rankstacks
