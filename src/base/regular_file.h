// Files that somebody else names: a core, a process, a library's debug link. Whoever can choose such a name can have it
// lead anywhere, and for some files opening or reading is an act: a tape is rewound, a watchdog armed, a kernel's log
// emptied (/proc/kmsg), a device's registers read (/sys/.../resource0).
//
//     path ──O_PATH──> what it leads to, not opened ── a regular file that is stored? ──/proc/self/fd/N──> opened
//
// What was looked at is what is opened: the name is not followed a second time.
#pragma once

#include <string>
#include <sys/stat.h>

#include <tl/expected.hpp>

#include "base/file_descriptor.h"

namespace rankstacks {

struct RegularFile {
  FileDescriptor descriptor;   // for reading; close-on-exec, and never waits
  struct stat status {};
};

struct NotRegular {
  int os_errno = 0;   // of what failed; 0: it is there, and is not of the kind that is opened
  std::string kind;   // "a directory", "a pipe", "a socket", "a device", "a file of procfs"; empty where a call failed
  std::string hint;
};

// Network file systems, FUSE and overlays count as storage; what the kernel makes up when it is read does not.
tl::expected<RegularFile, NotRegular> open_regular_file(const std::string& path);

}  // namespace rankstacks
