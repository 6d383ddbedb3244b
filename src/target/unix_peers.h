// Which socket a Unix socket is connected to, by its inode: asked of the kernel by sock_diag(7), in the tool's own network namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/file_descriptor.h"

namespace rankstacks {

std::vector<std::byte> unix_diag_request(std::uint32_t inode);

// The peer's inode of the socket with that inode. Nothing: the answer is an error (no such socket here), about another socket, or none at all; 0: the
// socket has no peer, or one that nobody has accepted yet.
std::optional<std::uint32_t> parse_unix_diag(std::span<const std::byte> answer, std::uint32_t inode);

class UnixPeers {
 public:
  // Nothing too where the kernel has no such interface.
  std::optional<std::uint32_t> peer_of(std::uint64_t inode);

 private:
  FileDescriptor socket_;
  bool tried_ = false;
};

}  // namespace rankstacks
