// The other end of a TCP connection, from literal tables; and how processes are called in reports.
#include <catch2/catch.hpp>

#include "capture/other_ends.h"
#include "capture/tcp_ends.h"

using namespace rankstacks;
using namespace rankstacks::capture;

namespace {

constexpr const char* kTrie =
    "Main:\n"
    "  +-- 0.0.0.0/0 3 0 5\n"
    "     |-- 0.0.0.0\n"
    "        /0 universe UNICAST\n"
    "     |-- 192.0.2.0\n"
    "        /24 link UNICAST\n"
    "Local:\n"
    "     |-- 192.0.2.2\n"
    "        /32 host LOCAL\n"
    "     |-- 198.51.100.0\n"
    "        /24 host LOCAL\n"
    "     |-- 192.0.2.255\n"
    "        /32 link BROADCAST\n";
constexpr const char* kSix =
    "fd000000000000000000000000000002 04 40 00 82     eth0\n"
    "00000000000000000000000000000001 01 80 10 80       lo\n";

nccl::SocketAddress v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d, std::uint16_t port = 0) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}, port};
}
nccl::SocketAddress v6(std::uint8_t first, std::uint8_t last, std::uint16_t port = 0) {
  return {{first, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}, port};
}

enum class State { kListens, kEstablished, kConnects, kCloses };
nccl::TcpSocket tcp(std::uint64_t inode, nccl::SocketAddress local, nccl::SocketAddress peer,
                    State state = State::kEstablished) {
  return {local, peer, state == State::kListens, state == State::kEstablished, state == State::kConnects, inode};
}

TcpEnds ends(std::vector<nccl::TcpSocket> sockets) { return {std::move(sockets), OwnAddresses(kTrie, kSix)}; }

}  // namespace

TEST_CASE("the addresses of a network namespace") {
  const OwnAddresses own(kTrie, kSix);
  CHECK(own.has(v4(192, 0, 2, 2)) == true);
  CHECK(own.has(v4(127, 9, 9, 9)) == true);
  CHECK(own.has(v4(198, 51, 100, 77)) == true);
  CHECK(own.has(v4(192, 0, 2, 3)) == false);
  CHECK(own.has(v4(192, 0, 2, 255)) == false);
  CHECK(own.has(v6(0xfd, 2)) == true);
  CHECK(own.has(v6(0, 1)) == true);
  CHECK(own.has(v6(0xfd, 3)) == false);
  const OwnAddresses unknown("", "");
  CHECK(unknown.has(v4(127, 0, 0, 1)) == true);
  CHECK_FALSE(unknown.has(v4(192, 0, 2, 2)).has_value());
  CHECK_FALSE(unknown.has(v6(0, 1)).has_value());
  for (const char* trie : {"/32 host LOCAL", "|-- x\n/32 host LOCAL", "|-- 192.0.2.2\n/ host LOCAL",
                           "|-- 192.0.2.2\n/0 host LOCAL", "|-- 192.0.2.2\n/99 host LOCAL", "|-- 192.0.2.2", "|-- "})
    CHECK(OwnAddresses(trie, "").has(v4(192, 0, 2, 2)) == false);
  for (const char* six : {"fd", "fd00000000000000000000000000000g 04", "fd000000000000000000000000000002",
                          "fd000000000000000000000000000002x"})
    CHECK(OwnAddresses("", six).has(v6(0xfd, 2)) == false);
}

TEST_CASE("the socket with the two addresses swapped") {
  const auto a = v4(127, 0, 0, 1, 40), b = v4(192, 0, 2, 2, 50);
  const TcpEnds pair = ends({tcp(7, a, b), tcp(8, b, a)});
  CHECK(pair.of(7).inode == 8);
  CHECK(pair.of(8).inode == 7);
  CHECK(pair.of(9).inode == 0);
  CHECK(pair.of(0).inode == 0);
  CHECK_FALSE(pair.of(7).other_host);
  CHECK(ends({tcp(7, a, a)}).of(7).inode == 0);  // connected to itself
}

TEST_CASE("a connection that is not accepted yet belongs to the listening process") {
  const auto a = v4(127, 0, 0, 1, 40), b = v4(127, 0, 0, 1, 50), any = v4(0, 0, 0, 0, 50), any6 = v6(0, 0, 50),
             other = v4(192, 0, 2, 2, 50);
  const auto listens = [&](std::uint64_t inode, nccl::SocketAddress at) { return tcp(inode, at, {}, State::kListens); };
  CHECK(ends({tcp(7, a, b), tcp(0, b, a), listens(9, b), listens(10, any)}).of(7).inode == 9);
  CHECK(ends({tcp(7, a, b), tcp(0, b, a), listens(10, any), listens(11, other)}).of(7).inode == 10);
  CHECK(ends({tcp(7, a, b), tcp(0, b, a), listens(10, any6)}).of(7).inode == 10);
  CHECK(ends({tcp(7, a, b), tcp(0, b, a), listens(9, b), listens(10, b)}).of(7).inode ==
        0);  // several sockets share the port
  CHECK(ends({tcp(7, a, b), tcp(0, b, a, State::kCloses), listens(9, b)}).of(7).inode ==
        0);  // its process has closed it
  CHECK(ends({tcp(7, a, b), listens(9, b)}).of(7).inode == 0);
  CHECK(ends({tcp(7, a, b, State::kConnects), listens(9, b)}).of(7).inode == 9);
  CHECK(ends({tcp(9, b, {}, State::kListens)}).of(9).inode == 0);
}

TEST_CASE("an address of another machine") {
  const auto far =
      ends({tcp(7, v4(192, 0, 2, 2, 40), v4(203, 0, 113, 5, 443)), tcp(8, v6(0xfd, 2, 40), v6(0xfd, 3, 443))});
  CHECK(far.of(7).other_host == "203.0.113.5");
  CHECK(far.of(8).other_host == "fd00::3");
  CHECK(far.of(7).inode == 0);
  const TcpEnds unknown({tcp(7, v4(192, 0, 2, 2, 40), v4(203, 0, 113, 5, 443))}, OwnAddresses("", ""));
  CHECK_FALSE(unknown.of(7).other_host);
}

TEST_CASE("a command in a few words") {
  CHECK(short_command({"/usr/bin/python3", "/data/prepare.py", "--all"}) == "python3 prepare.py");
  CHECK(short_command({"python3", "-m", "torch.distributed.run", "x"}) == "python3 -m torch.distributed.run");
  CHECK(short_command({"a", "-b", "-c", "-d"}) == "a -b -c");
  CHECK(short_command({"sleep"}) == "sleep");
  CHECK(short_command({}) == "");
  CHECK(short_command({""}) == "");
  CHECK(short_command({std::string(200, 'x')}) == std::string(80, 'x'));
  CHECK(short_command({std::string(79, 'x') + "\u00fc"}) == std::string(79, 'x'));
  CHECK(short_command({std::string(100, '\x80')}).size() <= 80);
}
