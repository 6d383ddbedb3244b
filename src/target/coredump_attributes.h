// What systemd-coredump notes in addition to the cores that it keeps, in extended attributes: systemd-coredump(8).
#pragma once

#include <string>

namespace rankstacks::target {

struct CoredumpAttributes {
  bool truncated = false;  // user.coredump.truncated: the core was larger than ExternalSizeMax or ProcessSizeMax
  std::string host;        // user.coredump.hostname: of the machine, where the process itself may not know it
};

// Of a file that has none, or on a file system without them, nothing.
CoredumpAttributes read_coredump_attributes(const std::string& path);

}  // namespace rankstacks::target
