// Finds the other end of a TCP connection if it is on this machine: the socket that has the two addresses in reverse.
// Uses the tables of /proc/PID/net, which are those of one network namespace.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nccl/socket_owner.h"
#include "target/socket_tables.h"

namespace rankstacks::capture {

// The addresses of a network namespace, from /proc/PID/net/fib_trie (including networks of which every address is
// local: "/8 host LOCAL") and if_inet6.
class OwnAddresses {
 public:
  OwnAddresses(std::string_view fib_trie, std::string_view if_inet6);
  // std::nullopt if the tables do not contain the answer.
  std::optional<bool> has(const nccl::SocketAddress& address) const;

 private:
  struct Network {
    std::uint32_t address = 0;  // in host order
    int prefix = 32;
  };
  std::vector<Network> v4_;
  std::vector<std::array<std::uint8_t, 16>> v6_;
  bool knows_v4_ = false, knows_v6_ = false;
};

class TcpEnds {
 public:
  TcpEnds(std::vector<nccl::TcpSocket> sockets, OwnAddresses own);

  struct End {
    // Of the other socket, or of the listening socket for a connection that has not been accepted yet; 0: not known.
    std::uint64_t inode = 0;
    std::optional<std::string> other_host;  // the address of the other end, if it is not one of this network namespace
  };
  End of(std::uint64_t inode) const;
  // nullptr if there is no such TCP socket here.
  const nccl::TcpSocket* find(std::uint64_t inode) const;

 private:
  std::uint64_t listener_at(const nccl::SocketAddress& address) const;

  using Ends = std::pair<nccl::SocketAddress, nccl::SocketAddress>;
  struct Hash {
    std::size_t operator()(const Ends& ends) const;
  };
  std::vector<nccl::TcpSocket> sockets_;
  OwnAddresses own_;
  std::unordered_map<std::uint64_t, std::size_t> by_inode_;
  std::unordered_map<Ends, std::size_t, Hash> by_ends_;
  std::vector<std::size_t> listening_;
};

// The TCP ends in the network namespace of the process.
TcpEnds tcp_ends_of(Pid pid, target::SocketTables& tables);

}  // namespace rankstacks::capture
