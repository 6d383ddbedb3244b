// Finds the process that owns a socket. NCCL's RAS has no way to say who answers: anybody on the machine can listen at
// its address and claim anything about a job. The kernel shows the owner in two tables: /proc/PID/net/tcp{,6} has the
// inode of each socket, /proc/PID/fd has the inodes that a process has open.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "target/socket_tables.h"

namespace rankstacks::nccl {

// As 16 bytes, an IPv4 address as ::ffff:a.b.c.d: an IPv6 socket may have an IPv4 peer.
struct SocketAddress {
  std::array<std::uint8_t, 16> address{};
  std::uint16_t port = 0;
  bool operator==(const SocketAddress&) const = default;
  bool is_any() const;       // 0.0.0.0 or ::
  std::string text() const;  // "127.0.0.1", "fe80::1"
};

struct TcpSocket {
  SocketAddress local, peer;
  bool listens = false, established = false, connecting = false;
  std::uint64_t inode = 0;  // 0: of a connection that nobody has accepted yet
};

// Parses the lines of one of the two files; malformed lines are left out.
std::vector<TcpSocket> parse_tcp_sockets(std::string_view text);

// The sockets of the network namespace that the process is in. Empty if /proc does not show them.
std::vector<TcpSocket> tcp_sockets_of(Pid pid, target::SocketTables& tables);
std::vector<TcpSocket> tcp_sockets_of(Pid pid);  // as they are now

// Which of the processes has a socket with this inode open. std::nullopt if none of them has, or their files may not be
// read.
std::optional<Pid> owner_of_socket(std::uint64_t inode, std::span<const Pid> processes);

// The inode of the other end of a connection within this machine, seen from the network namespace of a process; 0: not
// known, or not accepted yet.
std::uint64_t inode_of_other_end(int connected, Pid in_namespace_of);

}  // namespace rankstacks::nccl
