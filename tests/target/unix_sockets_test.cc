// The Unix sockets of a network namespace: lines of the kernel's form, and those of a real process.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <string>

#include "base/file_descriptor.h"
#include "target/unix_sockets.h"

using namespace rankstacks;
using namespace rankstacks::target;

namespace {

std::uint64_t inode_of(int fd) {
  struct stat status {};
  REQUIRE(::fstat(fd, &status) == 0);
  return status.st_ino;
}

}  // namespace

TEST_CASE("lines of Unix sockets") {
  const auto sockets = parse_unix_sockets(
      "Num       RefCount Protocol Flags    Type St Inode Path\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 20 /run/a socket\n"
      "0000000000000000: 00000003 00000000 00000000 0001 03 21 /run/a socket\n"
      "0000000000000000: 00000003 00000000 00000000 0001 03    22\n"
      "0000000000000000: 00000003 00000000 00000000 0005 03 23 @abstract\n"
      "0000000000000000: 00000002 00000000 00000000 0002 01 24 /run/datagrams\n"
      "0000000000000000: 00000002 00000000 00000000 0001 02 0\n"
      "0000000000000000: 00000002 00000000 zz 0001 01 25\n"
      "0000000000000000: 00000002");
  REQUIRE(sockets.size() == 4);
  CHECK(sockets.at(20).listens);
  CHECK(sockets.at(20).path == "/run/a socket");
  CHECK_FALSE(sockets.at(21).listens);
  CHECK(sockets.at(21).path == "/run/a socket");
  CHECK(sockets.at(22).path.empty());
  CHECK(sockets.at(23).path == "@abstract");
}

TEST_CASE("the Unix sockets of this process") {
  const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "rankstacks-unix-sockets-" + std::to_string(::getpid());
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  REQUIRE(::bind(listener.get(), where, size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::connect(client.get(), where, size) == 0);
  const FileDescriptor accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(accepted.is_open());
  const auto sockets = unix_sockets_of(::getpid());
  CHECK(sockets.at(inode_of(listener.get())).listens);
  CHECK(sockets.at(inode_of(listener.get())).path == "@" + name);
  CHECK_FALSE(sockets.at(inode_of(accepted.get())).listens);
  CHECK(sockets.at(inode_of(accepted.get())).path == "@" + name);
  CHECK(sockets.at(inode_of(client.get())).path.empty());
}
