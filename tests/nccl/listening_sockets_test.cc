// Which TCP sockets listen, as the kernel answers.
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>

#include "nccl/listening_sockets.h"

using namespace rankstacks;
using namespace rankstacks::nccl;

namespace {

struct Listener {
  explicit Listener(int family) : descriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    works = bind(descriptor, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(descriptor, 1) == 0 &&
            getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    port = ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);  // at the same place in both
    struct stat status {};
    if (fstat(descriptor, &status) == 0) inode = status.st_ino;
  }
  ~Listener() { close(descriptor); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int descriptor;
  bool works = false;
  std::uint16_t port = 0;
  std::uint64_t inode = 0;
};

std::vector<std::byte> message(std::uint16_t type, std::uint8_t state) {
  struct {
    nlmsghdr header;
    inet_diag_msg socket;
  } part{};
  part.header.nlmsg_len = sizeof part;
  part.header.nlmsg_type = type;
  part.socket.idiag_family = AF_INET;
  part.socket.idiag_state = state;
  part.socket.id.idiag_sport = htons(28028);
  part.socket.id.idiag_src[0] = htonl(INADDR_LOOPBACK);
  part.socket.idiag_inode = 7;
  const auto bytes = std::as_bytes(std::span(&part, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("sockets that listen are found with their address and inode, those that do not are not") {
  const Listener v4(AF_INET), v6(AF_INET6);
  REQUIRE(v4.works);
  const int connected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = htons(v4.port), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  REQUIRE(connect(connected, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const auto sockets = listening_sockets();
  close(connected);
  if (!sockets) {
    WARN("skipped: this kernel, or a filter, does not let sock_diag be asked");
    return;
  }
  const auto count = [&](std::uint16_t port, const char* text, std::uint64_t inode) {
    return std::count_if(sockets->begin(), sockets->end(), [&](const TcpSocket& s) {
      return s.listens && s.local.port == port && s.local.text() == text && s.inode == inode;
    });
  };
  CHECK(count(v4.port, "127.0.0.1", v4.inode) == 1);
  if (v6.works) CHECK(count(v6.port, "::1", v6.inode) == 1);
  // The same as in the tables that everybody can read.
  for (const TcpSocket& socket : tcp_sockets_of(getpid()))
    if (socket.inode == v4.inode) CHECK(socket.listens);
  CHECK(std::all_of(sockets->begin(), sockets->end(), [](const TcpSocket& s) { return s.listens; }));
}

TEST_CASE("an answer in parts, cut off, or of an error") {
  std::vector<TcpSocket> sockets;
  std::vector<std::byte> answer = message(SOCK_DIAG_BY_FAMILY, 10);
  CHECK(parse_listening(answer, sockets) == false);
  REQUIRE(sockets.size() == 1);
  CHECK(sockets[0].local.text() == "127.0.0.1");
  CHECK(sockets[0].local.port == 28028);
  CHECK(sockets[0].inode == 7);
  const auto established = message(SOCK_DIAG_BY_FAMILY, 1);
  answer.insert(answer.end(), established.begin(), established.end());
  const auto done = message(NLMSG_DONE, 0);
  answer.insert(answer.end(), done.begin(), done.end());
  sockets.clear();
  CHECK(parse_listening(answer, sockets) == true);
  CHECK(sockets.size() == 1);
  CHECK_FALSE(parse_listening(message(NLMSG_ERROR, 0), sockets));
  // The kernel has no module for TCP.
  auto refused = message(NLMSG_DONE, 0);
  const std::int32_t error = -ENOENT;
  std::memcpy(refused.data() + sizeof(nlmsghdr), &error, sizeof error);
  CHECK_FALSE(parse_listening(refused, sockets));
  for (std::size_t size = sizeof(nlmsghdr); size < sizeof(nlmsghdr) + sizeof(inet_diag_msg); ++size)
    CHECK_FALSE(parse_listening(std::span(answer).first(size), sockets));
  CHECK(parse_listening({}, sockets) == false);
}
