// Whose socket it is. NCCL's RAS has no way to say who answers: anybody on the machine can listen at its address, and
// say of a job what it likes. The kernel tells, in two tables: /proc/PID/net/tcp{,6} which inode a socket has,
// /proc/PID/fd which process has that inode open.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace rankstacks {

// As 16 bytes, an IPv4 address as ::ffff:a.b.c.d: a socket of IPv6 may have one of IPv4 as its peer.
struct SocketAddress {
  std::array<std::uint8_t, 16> address{};
  std::uint16_t port = 0;
  bool operator==(const SocketAddress&) const = default;
  bool is_any() const;        // 0.0.0.0 or ::
  std::string text() const;   // "127.0.0.1", "fe80::1"
};

struct TcpSocket {
  SocketAddress local, peer;
  bool listens = false, established = false, connecting = false;
  std::uint64_t inode = 0;   // 0: of a connection that nobody has accepted yet
};

// The lines of one of the two files; those that are none are left out.
std::vector<TcpSocket> parse_tcp_sockets(std::string_view text);

// Of the network namespace that the process is in. Empty: /proc does not tell.
std::vector<TcpSocket> tcp_sockets_of(Pid pid);

// Which of the processes has a socket with this inode open. Nothing: none of them, or their files may not be looked at.
std::optional<Pid> owner_of_socket(std::uint64_t inode, std::span<const Pid> processes);

// The inode of the other end of a connection within this machine, seen from the network namespace of a process; 0: not
// told, or not accepted yet.
std::uint64_t inode_of_other_end(int connected, Pid in_namespace_of);

}  // namespace rankstacks
