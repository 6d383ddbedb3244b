// NVIDIA's libraries of this machine: the only ones that are ever loaded into a process of the tool's.
//
// A library is looked for where ldconfig and NVIDIA's packages have it, in the tool's own mount namespace; never where a process, a variable of the
// environment or the command line says. Who can write it, or put another one into its place, could run code with the rights of the tool: so the file and
// each directory from the root down to it must belong to root, and nobody else may write them. What was looked at is what is loaded: the
// file is held open from the look to the load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/machine.h"
#include "target/file_descriptor.h"

namespace rankstacks::gpu {

inline constexpr const char* kDriverLibrary = "libcuda.so.1";
inline constexpr const char* kDebuggerLibrary = "libcudadebugger.so.1";   // what libcuda loads by name for a debugger
inline constexpr const char* kManagementLibrary = "libnvidia-ml.so.1";

struct MachineLibrary {
  FileDescriptor file;                     // open for reading
  std::string path;                        // without symbolic links
  std::uint64_t device = 0, inode = 0;
};

// The file at that path, if only root can have written it. `trusted`: a directory that is taken for root's, with all that it lies in (tests).
// Errors: kNotFound; kPermission: the file or a directory that somebody else may write, which the error names.
Result<MachineLibrary> open_machine_library(const std::string& path, const std::string& trusted = "");

// All libraries of that name, each file once, in the order in which the loader would look for them. Errors: of the first that was refused where
// there is no other; kNotFound.
Result<std::vector<MachineLibrary>> find_machine_libraries(const std::string& name, const Machine& machine);

// Loads it into this process, with all symbols bound, as dlopen() does. Its descriptor stays open: the loader knows the library by that number from then on.
// Errors: kNotFound with the loader's reason.
Result<void*> load(const MachineLibrary& library);

}  // namespace rankstacks::gpu
