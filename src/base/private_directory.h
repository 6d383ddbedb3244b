// A directory that only its owner can have made and can write to, in which several runs of the tool share something:
// locks, and what one of them has found out.
//
// Its place may be below /tmp, where anybody can make a directory or a link of any name first. So it is opened without
// following links, and used only if it belongs to this user and nobody else may enter it; what is in it is opened
// relative to it, never by a path again.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/result.h"

namespace rankstacks {
inline namespace base {

// An exclusive lock; released with the object, or by the kernel if the process ends.
class FileLock {
 public:
  explicit FileLock(FileDescriptor file) : file_(std::move(file)) {}

 private:
  FileDescriptor file_;
};

class PrivateDirectory {
 public:
  // Below $XDG_RUNTIME_DIR if that is a directory of this user alone, else for root /run/rankstacks, else
  // /tmp/rankstacks-UID. kPermission: the name is taken by something that is not this user's own.
  static Result<PrivateDirectory> of_user();
  // Made (mode 0700) if it is not there.
  static Result<PrivateDirectory> open(const std::string& path);

  const std::string& path() const { return path_; }

  // Waits for the lock until the deadline. kTimeout: another process has it for longer.
  Result<FileLock> lock(const std::string& name, const Deadline& deadline) const;

  // Names of its regular files, ascending.
  std::vector<std::string> names() const;
  // std::nullopt if there is no such regular file of this user, or if it is longer than `most`.
  std::optional<std::string> read(const std::string& name, std::size_t most) const;
  // Under a temporary name, synced, and then renamed: nobody sees a part of it. Returns 0 or an errno.
  int write(const std::string& name, std::string_view bytes) const;
  void remove(const std::string& name) const;

 private:
  PrivateDirectory(std::string path, FileDescriptor directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}

  std::string path_;
  FileDescriptor directory_;
};

}  // namespace base
}  // namespace rankstacks
