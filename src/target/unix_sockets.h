// The Unix sockets of a network namespace, as /proc/PID/net/unix lists them (net/unix/af_unix.c, unix_seq_show).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/types.h"

namespace rankstacks::target {

// A socket of connections: SOCK_STREAM or SOCK_SEQPACKET.
struct UnixSocket {
  bool listens = false;
  // Of one that listens, and of those that it has accepted: its address, with '@' before an abstract one. Empty for
  // the client's side of a connection, and for both sides of a socketpair().
  std::string path;
};

// By inode. Malformed lines are left out, and so are sockets without an inode, which nobody has accepted yet.
std::map<std::uint64_t, UnixSocket> parse_unix_sockets(std::string_view text);

// Empty if /proc does not show them.
std::map<std::uint64_t, UnixSocket> unix_sockets_of(Pid pid);

}  // namespace rankstacks::target
