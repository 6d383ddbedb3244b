// The TCP sockets of the tool's own network namespace that listen.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "nccl/socket_owner.h"

namespace rankstacks::nccl {

// Asked of the kernel (sock_diag(7)), which keeps them in a table of their own: /proc/net/tcp walks the one of the
// connections as well, whose size depends on the machine's memory (a millisecond at 24 GiB). std::nullopt: it does not
// answer that.
std::optional<std::vector<TcpSocket>> listening_sockets();

// A part of the answer. False: the last one is not reached. std::nullopt: the kernel refuses.
std::optional<bool> parse_listening(std::span<const std::byte> answer, std::vector<TcpSocket>& sockets);

}  // namespace rankstacks::nccl
