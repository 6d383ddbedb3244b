// Opens files whose names come from elsewhere: a core, a process, a library's debug link. An attacker who chooses such
// a name can make it lead anywhere, and for some files opening or reading has side effects: a tape is rewound, a
// watchdog armed, a kernel's log emptied (/proc/kmsg), a device's registers read (/sys/.../resource0).
//
//     path ──O_PATH──> what it leads to, not opened ── a regular file that is stored? ──/proc/self/fd/N──> opened
//
// The file that was checked is the file that is opened: the name is not followed a second time.
#pragma once

#include <sys/stat.h>
#include <cstdint>
#include <string>

#include <tl/expected.hpp>

#include "base/file_descriptor.h"

namespace rankstacks {
inline namespace base {

struct RegularFile {
  FileDescriptor descriptor;  // for reading; close-on-exec; open and read never block on it
  struct stat status {};
  std::uint32_t file_system = 0;  // statfs(2), f_type
};

struct NotRegular {
  int os_errno = 0;  // errno of the call that failed; 0: the file exists, but is not of a kind that is opened
  std::string kind;  // "a directory", "a pipe", "a socket", "a device", "a file of procfs"; empty where a call failed
  std::string hint;
};

// Files on network file systems, FUSE and overlays count as stored; files whose contents the kernel generates on
// reading do not.
tl::expected<RegularFile, NotRegular> open_regular_file(const std::string& path);

// The same for what an O_PATH descriptor refers to.
tl::expected<RegularFile, NotRegular> open_regular_file(const FileDescriptor& place);

}  // namespace base
}  // namespace rankstacks
