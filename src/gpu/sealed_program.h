// A copy of this program in memory that nobody can change, to be executed as a helper.
//
// A helper that goes into a container can be looked at by the container's root, and /proc/HELPER/exe is then a way to the file that it runs: the machine's own
// program, which root of a container without a user namespace could open for writing as soon as no process runs it (CVE-2019-5736 was that). What it leads to here is
// this copy, sealed against writing.
#pragma once

#include <string>
#include <utility>

#include "target/file_descriptor.h"

namespace rankstacks::gpu {

class SealedProgram {
 public:
  static constexpr const char* kOwnProgram = "/proc/self/exe";

  // Where a copy cannot be had or may not be executed (no memory left; vm.memfd_noexec=2), the program's own file stands for it.
  SealedProgram();
  // That file, and no copy.
  static const SealedProgram& own();

  // To be executed by this process or a child that shares its descriptors.
  std::string path() const;
  bool is_sealed() const { return copy_.is_open(); }

 private:
  explicit SealedProgram(FileDescriptor copy) : copy_(std::move(copy)) {}
  FileDescriptor copy_;
};

}  // namespace rankstacks::gpu
