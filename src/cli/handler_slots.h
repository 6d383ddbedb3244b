// How many core handlers look into cores at the same time. The kernel starts one for each process that dies, outside of
// all limits of its user: who lets a thousand processes die at once must not take the machine's memory.
#pragma once

#include <string>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/result.h"

namespace rankstacks::cli {

inline constexpr int kHandlerSlots = 8;  // a node's ranks, mostly

// Waits for one of the slots, which are locked files in `directory` (which messages call `called`); it is given back
// when the descriptor is closed. Errors: kTimeout; kPermission if a slot is not a file of this user's alone.
Result<FileDescriptor> take_slot(const FileDescriptor& directory, const std::string& called, const Deadline& deadline);

}  // namespace rankstacks::cli
