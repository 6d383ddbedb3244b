// sock_diag's answers about Unix sockets: literal answers, and the kernel's about sockets of this process.
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <catch2/catch.hpp>
#include <cstring>

#include "target/unix_peers.h"

using namespace rankstacks;
using namespace rankstacks::target;

namespace {

using Bytes = std::vector<std::byte>;

template <class T>
void append(Bytes& bytes, const T& value) {
  const auto more = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), more.begin(), more.end());
}

struct Attribute {
  std::uint16_t type = 0;
  std::uint32_t value = 0;
  std::uint16_t length = sizeof(rtattr) + sizeof(std::uint32_t);
};

Bytes answer(std::uint32_t inode, const std::vector<Attribute>& attributes, std::uint16_t type = SOCK_DIAG_BY_FAMILY) {
  Bytes bytes;
  append(bytes, nlmsghdr{.nlmsg_type = type});
  append(bytes, unix_diag_msg{.udiag_family = AF_UNIX, .udiag_type = SOCK_STREAM, .udiag_ino = inode});
  for (const Attribute& attribute : attributes) {
    append(bytes, rtattr{attribute.length, attribute.type});
    append(bytes, attribute.value);
  }
  const auto size = static_cast<std::uint32_t>(bytes.size());
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes;
}

std::uint64_t inode_of(int fd) {
  struct stat file {};
  ::fstat(fd, &file);
  return file.st_ino;
}

}  // namespace

TEST_CASE("a peer's inode in sock_diag's answer") {
  CHECK(parse_unix_diag(answer(7, {{UNIX_DIAG_PEER, 8}}), 7) == 8u);
  CHECK(parse_unix_diag(answer(7, {{UNIX_DIAG_SHUTDOWN, 1}, {UNIX_DIAG_PEER, 8}}), 7) == 8u);
  CHECK(parse_unix_diag(answer(7, {}), 7) == 0u);
  CHECK(parse_unix_diag(answer(7, {{UNIX_DIAG_SHUTDOWN, 1}}), 7) == 0u);
}

TEST_CASE("answers that are not about the socket") {
  CHECK_FALSE(parse_unix_diag({}, 7));
  CHECK_FALSE(parse_unix_diag(answer(6, {{UNIX_DIAG_PEER, 8}}), 7));
  CHECK_FALSE(parse_unix_diag(answer(7, {{UNIX_DIAG_PEER, 8}}, NLMSG_ERROR), 7));
  CHECK_FALSE(parse_unix_diag(answer(7, {{UNIX_DIAG_PEER, 8, 3}}), 7));    // shorter than its own header
  CHECK_FALSE(parse_unix_diag(answer(7, {{UNIX_DIAG_PEER, 8, 400}}), 7));  // longer than the answer
  CHECK(parse_unix_diag(answer(7, {{UNIX_DIAG_PEER, 8, 5}}), 7) != 8u);    // too short for an inode
  const Bytes whole = answer(7, {{UNIX_DIAG_PEER, 8}});
  for (std::size_t size = 0; size < whole.size(); ++size) CHECK_FALSE(parse_unix_diag(std::span(whole).first(size), 7));
}

TEST_CASE("the peers of this process's own sockets") {
  int pair[2], alone;
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  REQUIRE((alone = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
  UnixPeers peers;
  const auto peer = peers.peer_of(inode_of(pair[0]));
  if (!peer) {
    WARN("skipped: sock_diag does not answer here");
    return;
  }
  CHECK(*peer == inode_of(pair[1]));
  CHECK(peers.peer_of(inode_of(pair[1])) == static_cast<std::uint32_t>(inode_of(pair[0])));
  CHECK(peers.peer_of(inode_of(alone)) == 0u);
  CHECK_FALSE(peers.peer_of(0));
  CHECK_FALSE(peers.peer_of(std::uint64_t{1} << 32));
  ::close(pair[1]);
  CHECK(peers.peer_of(inode_of(alone)) == 0u);  // each answer belongs to its question
  ::close(pair[0]);
  ::close(alone);
}
