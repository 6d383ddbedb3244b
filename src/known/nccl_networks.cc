#include "known/nccl_networks.h"

namespace rankstacks::known {

// nccl transport/net_socket.cc, transport/net_ib: functions of ncclNetSocket and ncclNetIb, 2.18 to 2.28.
std::string_view nccl_network(std::string_view function) {
  if (function.starts_with("ncclNetSocket")) return "sockets";
  if (function.starts_with("ncclIb")) return "InfiniBand or RoCE";
  return "";
}

}  // namespace rankstacks::known
