// Whose a process is that dies, and with which rights its core may be read: `rankstacks core-handler`.
#pragma once

#include <sys/types.h>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "base/types.h"
#include "base/whole_file.h"

namespace rankstacks::cli {

enum class CoreReader {
  kItself,  // as this process: it is not root's
  kUser,    // the process's user and group, without others
  kRoot,    // root, without any capability: the process is root's, and its files may be readable for root alone
  kNobody,  // for a process whose rights are not all of one user
};

struct DyingRights {
  FileOwner owner;  // of the files: root for a process that is not dumpable
  CoreReader reader = CoreReader::kItself;
};

// `memory` is its open /proc/PID/mem; `user` and `group` are the kernel's %u and %g. Belongs to root unless all of
// these hold: the memory is the user's (it is root's if the process is not dumpable: proc(5), /proc/PID), and its real,
// effective and saved ids are all the same. (The directory /proc/PID belongs to the effective user, also
// of a process that is not dumpable: fs/proc/base.c, task_dump_owner.)
DyingRights rights_of_dying(Pid pid, const FileDescriptor& memory, uid_t user, gid_t group);

// Takes on these rights, for good, in a forked process, which ends if its parent has ended.
Result<void> become(const DyingRights& rights);

}  // namespace rankstacks::cli
