// A copy of this program in memory that nobody can change, to be executed as a helper.
//
// A helper that enters a container can be inspected by the container's root, and /proc/HELPER/exe then leads to the
// file that it executes. That would be the machine's own program, which root of a container without a user namespace
// could open for writing as soon as no process executes it (CVE-2019-5736 was such a case). Here it leads to this copy,
// which is sealed against writing.
#pragma once

#include <string>
#include <utility>

#include "base/file_descriptor.h"

namespace rankstacks::gpu {

class SealedProgram {
 public:
  static constexpr const char* kOwnProgram = "/proc/self/exe";

  // If a copy cannot be made or may not be executed (no memory left; vm.memfd_noexec=2), the program's own file is
  // used.
  SealedProgram();
  // The program's own file, without a copy.
  static const SealedProgram& own();

  // The path for execution by this process, or by a child that shares its descriptors.
  std::string path() const;
  bool is_sealed() const { return copy_.is_open(); }

 private:
  explicit SealedProgram(FileDescriptor copy) : copy_(std::move(copy)) {}
  FileDescriptor copy_;
};

}  // namespace rankstacks::gpu
