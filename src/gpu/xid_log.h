// Xid events: what NVIDIA's driver writes into the kernel's log when a GPU fails.
//
//     NVRM: Xid (PCI:0000:0a:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rankstacks::gpu {

// "0000:0a:00" and 79, for each such line of the text.
std::vector<std::pair<std::string, unsigned>> parse_xids(std::string_view log);

// From /dev/kmsg, which keeps what was written since boot, as far as its ring buffer still has it. Never waits; at most
// 8 MiB. Empty if the log cannot be read.
std::vector<std::pair<std::string, unsigned>> read_xids(const std::string& path);

}  // namespace rankstacks::gpu
