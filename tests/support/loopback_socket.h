// TCP sockets of this process on 127.0.0.1.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <cstdint>
#include <string>

#include "base/file_descriptor.h"

namespace rankstacks::testing {

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(port);
  return where;
}

// Listens at a port that the kernel chooses.
inline FileDescriptor listening_socket() {
  FileDescriptor made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in any = loopback(0);
  (void)!::bind(made.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any);
  (void)!::listen(made.get(), 8);
  return made;
}

inline std::uint16_t port_of(const FileDescriptor& made) {
  sockaddr_in where{};
  socklen_t size = sizeof where;
  (void)!::getsockname(made.get(), reinterpret_cast<sockaddr*>(&where), &size);
  return ntohs(where.sin_port);
}

inline FileDescriptor connected_to(std::uint16_t port) {
  FileDescriptor made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in there = loopback(port);
  if (::connect(made.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) return {};
  return made;
}

inline std::string inode_of(const FileDescriptor& made) {
  struct stat status {};
  (void)!::fstat(made.get(), &status);
  return std::to_string(status.st_ino);
}

}  // namespace rankstacks::testing
