// Xid events: what NVIDIA's driver writes into the kernel's log when a GPU fails.
//
//     NVRM: Xid (PCI:0000:0a:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace rankstacks::gpu {

struct XidEvent {
  std::string pci;  // "0000:0a:00"
  unsigned number = 0;
  std::optional<Pid> pid;         // of the process whose work it was, in the machine's pid namespace
  std::optional<double> seconds;  // since boot
  bool operator==(const XidEvent&) const = default;
};

// One for each such line of the text. Lines begin as in /dev/kmsg ("4,1201,98765432,-;NVRM: ..."; the third number is
// the time in microseconds), or with the text itself. Format: Documentation/ABI/testing/dev-kmsg.
std::vector<XidEvent> parse_xids(std::string_view log);

// From /dev/kmsg, which keeps what was written since boot, as far as its ring buffer still has it. Never waits; at most
// 8 MiB. Empty if the log cannot be read.
std::vector<XidEvent> read_xids(const std::string& path);

}  // namespace rankstacks::gpu
