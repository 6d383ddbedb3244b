// Formats sets of hosts as launchers write them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace rankstacks {
inline namespace model {

// "login,node-[1-3,7],rack2-node[08-11]": names that differ by their last number alone are folded. At most `limit`
// items, an item being a range or a name; then "and 12 more".
std::string format_host_set(std::vector<std::string> hosts, std::size_t limit = 16);

}  // namespace model
}  // namespace rankstacks
