// The IP addresses of this machine, as seen in the calling thread's network namespace.
#pragma once

#include <string>
#include <vector>

namespace rankstacks::nccl {

// Written as inet_ntop() does, without a zone, which is how NCCL writes them.
std::vector<std::string> local_addresses();

// Whether the address is one of an interface, or in the loopback network.
bool is_local_address(const std::string& address);

}  // namespace rankstacks::nccl
