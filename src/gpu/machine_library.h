// NVIDIA's libraries of this machine: the only ones that are ever loaded into one of the tool's processes.
//
// A library is searched for where ldconfig and NVIDIA's packages put it, in the tool's own mount namespace; never where
// a process, an environment variable or the command line says. Anyone who can write a library, or replace it by
// another, could run code with the rights of the tool: so the file and each directory from the root down to it must
// belong to root, and nobody else may write them. The file that was checked is the file that is loaded: it is held open
// from the check to the load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "gpu/machine.h"

namespace rankstacks::gpu {

inline constexpr const char* kDriverLibrary = "libcuda.so.1";
inline constexpr const char* kDebuggerLibrary = "libcudadebugger.so.1";  // what libcuda loads by name for a debugger
inline constexpr const char* kManagementLibrary = "libnvidia-ml.so.1";

struct MachineLibrary {
  FileDescriptor file;  // open for reading
  std::string path;     // without symbolic links
  std::uint64_t device = 0, inode = 0;
};

// The file at that path, if only root can have written it. `trusted`: a directory that counts as root's, with all
// directories above it (tests). Errors: kNotFound; kPermission: somebody else may write the file or a directory, which
// the error names.
Result<MachineLibrary> open_machine_library(const std::string& path, const std::string& trusted = "");

// All libraries of that name, each file once, in the order in which the loader would find them. Errors: if there is
// none, the error of the first that was refused, else kNotFound.
Result<std::vector<MachineLibrary>> find_machine_libraries(const std::string& name, const Machine& machine);

// Loads the library into this process, with all symbols bound, as dlopen() does. Its descriptor stays open: from then
// on the loader identifies the library by that number. Errors: kNotFound with the loader's reason.
Result<void*> load(const MachineLibrary& library);

}  // namespace rankstacks::gpu
