// The networks over which NCCL moves data, by the functions in which its threads do so.
#pragma once

#include <string_view>

namespace rankstacks::known {

// "sockets" for ncclNetSocketTest(...), "InfiniBand or RoCE" for ncclIbTest(...); "" for any other function.
std::string_view nccl_network(std::string_view function);

}  // namespace rankstacks::known
