// A temporary file with holes: unlinked, in $TMPDIR or /tmp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace rankstacks::target {

class SparseFile {
 public:
  // It may take the free space of the directory minus a twentieth. Errors, which name `subject`: it cannot be made.
  static Result<SparseFile> create(const std::string& subject);

  // Errors: kLimit, there is no room for the bytes.
  std::optional<Error> write(std::span<const char> bytes, std::uint64_t at);
  std::optional<Error> set_size(std::uint64_t size);

  int descriptor() const { return file_.get(); }
  FileDescriptor take() { return std::move(file_); }

 private:
  FileDescriptor file_;
  std::string directory_, subject_;
  std::uint64_t budget_ = 0;  // bytes that may still be written
};

}  // namespace rankstacks::target
