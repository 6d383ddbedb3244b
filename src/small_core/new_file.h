// A file that appears under its name only when all of it is on the disk.
//
// It is written under another name in the same directory, synchronized, and renamed. If anything fails (a full disk, a
// quota, the end of the tool by an exception), the other name is removed and what had the name before stays.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace rankstacks::small_core {

class NewFile {
 public:
  // Only its owner can read it. Errors carry the errno.
  static Result<NewFile> create(const std::string& path);
  ~NewFile();
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;

  Result<void> write(std::span<const std::byte> bytes);
  // Gives it its name.
  Result<void> finish();

 private:
  NewFile(std::string path, std::string temporary, FileDescriptor file);
  Error error(const char* what) const;

  std::string path_, temporary_;  // temporary_: empty when it is gone
  FileDescriptor file_;
};

}  // namespace rankstacks::small_core
