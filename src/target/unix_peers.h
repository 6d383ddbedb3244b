// Finds the socket that a Unix socket is connected to, by its inode: the kernel is asked by sock_diag(7), in the tool's
// own network namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/file_descriptor.h"

namespace rankstacks::target {

std::vector<std::byte> unix_diag_request(std::uint32_t inode);

// The inode of the peer of the socket with that inode. std::nullopt if the answer is an error (no such socket here), is
// about another socket, or is missing; 0 if the socket has no peer, or one that nobody has accepted yet.
std::optional<std::uint32_t> parse_unix_diag(std::span<const std::byte> answer, std::uint32_t inode);

class UnixPeers {
 public:
  // std::nullopt also if the kernel does not have this interface.
  std::optional<std::uint32_t> peer_of(std::uint64_t inode);

 private:
  FileDescriptor socket_;
  bool tried_ = false;
};

}  // namespace rankstacks::target
