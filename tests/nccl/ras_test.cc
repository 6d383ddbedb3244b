// The dialogue with NCCL's RAS thread, against servers that behave correctly and others that do not.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>

#include "nccl/fake_ras.h"
#include "nccl/ras.h"
#include "nccl/socket_owner.h"

using namespace rankstacks;
using namespace rankstacks::nccl;
using namespace rankstacks::testing;

namespace {

bool anyone(int) { return true; }

Result<NcclStatus> ask(const FakeRas& server, std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  return query_ras("localhost", server.port(), Deadline::after(timeout), anyone);
}

// The error without its subject, which must be the server.
std::string error_of(const FakeRas& server, ErrorCode code,
                     std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  const auto answer = ask(server, timeout);
  if (answer) return "it answered";
  CHECK(answer.error().code == code);
  const std::string subject = fmt::format("NCCL's RAS at 127.0.0.1:{}: ", server.port());
  const std::string message = answer.error().message();
  return message.starts_with(subject) ? message.substr(subject.size()) : message;
}

}  // namespace

TEST_CASE("NCCL's answer is read") {
  const FakeRas server([](const Guest& guest) { answer_as_nccl(guest, real_answer("asleep")); });
  for (const char* host : {"localhost", "127.0.0.1", "0.0.0.0", "some-name-of-this-machine"}) {
    const auto status = query_ras(host, server.port(), Deadline::after(std::chrono::seconds(20)), anyone);
    REQUIRE(status);
    CHECK(status->version == "2.28.9");
    REQUIRE(status->communicators.size() == 1);
    CHECK(status->communicators[0].members.size() == 2);
  }
}

TEST_CASE("a server that is not trusted is asked nothing") {
  std::atomic<bool> asked{false};
  const FakeRas server([&](const Guest& guest) {
    guest.line();
    guest.say("SERVER PROTOCOL 2\n");
    asked = asked || !guest.line().empty();
  });
  const auto status =
      query_ras("localhost", server.port(), Deadline::after(std::chrono::seconds(20)), [](int) { return false; });
  REQUIRE_FALSE(status);
  CHECK(status.error().code == ErrorCode::kPermission);
  CHECK(status.error().what == "is answered by a process that is not looked at");
  // The server takes one connection after the other: it accepts a second one when the first has ended.
  CHECK(query_ras("localhost", server.port(), Deadline::after(std::chrono::seconds(20)), [](int) { return false; })
            .error()
            .code == ErrorCode::kPermission);
  CHECK_FALSE(asked);
}

TEST_CASE("the process that has a socket") {
  // The server is a program of its own, as its descriptors are searched: this program's would do, but both ends of the
  // connection would then belong to the same process.
  const pid_t other = ::fork();
  if (other == 0) {
    for (int fd = 3; fd < 1024; ++fd) ::close(fd);
    ::pause();
    ::_exit(0);
  }
  std::uint64_t seen_inode = 0, listening_inode = 0;
  const FakeRas server([&](const Guest& guest) { answer_as_nccl(guest, real_answer("asleep")); });
  for (const TcpSocket& socket : tcp_sockets_of(::getpid()))
    if (socket.listens && socket.local.port == server.port()) {
      listening_inode = socket.inode;
      CHECK(socket.local.text() == "127.0.0.1");
      CHECK_FALSE(socket.local.is_any());
    }
  const auto believed = [&](int connected) {
    seen_inode = inode_of_other_end(connected, ::getpid());
    return true;
  };
  REQUIRE(query_ras("127.0.0.1", server.port(), Deadline::after(std::chrono::seconds(20)), believed));
  CHECK(seen_inode != 0);
  CHECK(listening_inode != 0);
  const std::array own{::getpid()}, others{static_cast<Pid>(other)};
  const std::array both{static_cast<Pid>(other), ::getpid()};
  CHECK(owner_of_socket(listening_inode, own) == ::getpid());
  CHECK(owner_of_socket(listening_inode, both) == ::getpid());
  CHECK(owner_of_socket(listening_inode, others) == std::nullopt);
  CHECK(owner_of_socket(0, own) == std::nullopt);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST_CASE("the lines of /proc/net/tcp and tcp6") {
  const auto sockets = parse_tcp_sockets(
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 987654 1 "
      "0000000000000000 100 0 0 10 0\n"
      "   1: 0100007F:6D7C 0200007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000 "
      "20 4 30 10 -1\n"
      "   2: 0000000000000000FFFF00000100007F:6D7C 00000000000000000000000000000000:0000 0A 00000000:00000000 "
      "00:00000000 00000000 0 0 18446744073709551615 1\n"
      "   3: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 7 1\n"
      "   4: 00000000:0051 00000000:0000 0A 0:0 0:0 0 0 0 8\n"
      "   5: 0100007F:6D7C 00000000:0000\n"
      "   6: 0100007:6D7C 00000000:0000 0A 0:0 0:0 0 0 0 8\n"
      "   7: 0100007F:16D7C 00000000:0000 0A 0:0 0:0 0 0 0 8\n"
      "   8: 0100007G:6D7C 00000000:0000 0A 0:0 0:0 0 0 0 8\n");
  REQUIRE(sockets.size() == 5);
  CHECK(sockets[0].listens);
  CHECK(sockets[0].local.text() == "127.0.0.1");
  CHECK(sockets[0].local.port == 28028);
  CHECK(sockets[0].inode == 987654);
  CHECK_FALSE(sockets[1].listens);
  CHECK((sockets[1].established && !sockets[0].established && !sockets[1].connecting));
  CHECK(sockets[1].peer.text() == "127.0.0.2");
  CHECK(sockets[2].local == sockets[0].local);  // an IPv6 socket that is bound to an IPv4 address
  CHECK(sockets[2].inode == 18446744073709551615ull);
  CHECK(sockets[3].local.is_any());
  CHECK(sockets[3].local.text() == "::");
  CHECK(sockets[4].local.is_any());
  CHECK(sockets[4].local.text() == "0.0.0.0");
}

TEST_CASE("an answer in many small pieces") {
  const FakeRas server([](const Guest& guest) {
    for (const char* answer : {"SERVER PROTOCOL 2\r\n", "OK\r\n", "OK\n"}) {
      guest.line();
      for (const char* c = answer; *c != 0; ++c) guest.say(std::string(1, *c));
    }
    guest.line();
    for (const char c : real_answer("asleep")) guest.say(std::string(1, c));
  });
  const auto status = ask(server);
  REQUIRE(status);
  CHECK(status->communicators.at(0).members.at(1).pid == 545);
}

TEST_CASE("no process listens") {
  std::uint16_t port = 0;
  {
    port = FakeRas([](const Guest&) {}).port();
  }
  const auto answer = query_ras("localhost", port, Deadline::after(std::chrono::seconds(20)), anyone);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == ErrorCode::kNotFound);
  CHECK(answer.error().message() == fmt::format("NCCL's RAS at localhost:{}: nobody listens there", port));
}

TEST_CASE("an address of another machine is not asked") {
  // 192.0.2.0/24 is reserved for documentation (RFC 5737): a connection to it would wait until the deadline.
  const auto answer = query_ras("192.0.2.1", 28028, Deadline::never(), anyone);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == ErrorCode::kNotFound);
}

TEST_CASE("a server that sends nothing") {
  const FakeRas silent([](const Guest& guest) { guest.keep_silent(); });
  CHECK(error_of(silent, ErrorCode::kTimeout, std::chrono::milliseconds(30)) ==
        "no whole answer to CLIENT PROTOCOL 2 in time");
  const FakeRas stuck([](const Guest& guest) {
    answer_as_nccl(guest, R"({"communicators": [)");
    guest.keep_silent();
  });
  CHECK(error_of(stuck, ErrorCode::kTimeout, std::chrono::seconds(3)) == "no whole answer to VERBOSE STATUS in time");
}

TEST_CASE("a server whose answer never ends") {
  const FakeRas drips([](const Guest& guest) {
    guest.line();
    while (guest.say("x")) continue;
  });
  CHECK(error_of(drips, ErrorCode::kUnsupported) ==
        "its answer to CLIENT PROTOCOL 2 is no line: another program may listen there");
  const FakeRas endless([](const Guest& guest) {
    answer_as_nccl(guest, "");
    const std::string spaces(1 << 20, ' ');
    while (guest.say(spaces)) continue;
  });
  CHECK(error_of(endless, ErrorCode::kLimit) == "its answer has more than 64 MiB");
}

TEST_CASE("a server that closes the connection") {
  const FakeRas at_once([](const Guest& guest) { guest.line(); });
  CHECK(error_of(at_once, ErrorCode::kGone) == "it hung up after CLIENT PROTOCOL 2");
  const FakeRas later([](const Guest& guest) { answer_as_nccl(guest, ""); });
  CHECK(error_of(later, ErrorCode::kGone) == "it hung up without an answer");
  const FakeRas in_the_middle([](const Guest& guest) { answer_as_nccl(guest, real_answer("asleep").substr(0, 700)); });
  CHECK(error_of(in_the_middle, ErrorCode::kMalformed) == "its answer is no JSON from character 701 on");
}

TEST_CASE("servers of other versions, and other programs") {
  const FakeRas text_only([](const Guest& guest) {
    answer_as_nccl(guest, "", "SERVER PROTOCOL 2", "ERROR: Unknown command SET FORMAT json");
  });
  CHECK(error_of(text_only, ErrorCode::kUnsupported) ==
        "gives no JSON, which NCCL does from 2.28.7 on: \"ERROR: Unknown command SET FORMAT json\"");
  const FakeRas later([](const Guest& guest) { answer_as_nccl(guest, "", "SERVER PROTOCOL 3"); });
  CHECK(error_of(later, ErrorCode::kUnsupported) == "speaks \"SERVER PROTOCOL 3\"; this program speaks protocol 2");
  const FakeRas other([](const Guest& guest) {
    guest.line();
    guest.say("HTTP/1.1 400 Bad \x1b[31mRequest\n");
  });
  CHECK(error_of(other, ErrorCode::kUnsupported) ==
        "its greeting is \"HTTP/1.1 400 Bad ?[31mRequest\": another program may listen there");
  const FakeRas refuses([](const Guest& guest) { answer_as_nccl(guest, "ERROR: no\nmore"); });
  CHECK(error_of(refuses, ErrorCode::kUnsupported) == "its answer to VERBOSE STATUS is \"ERROR: no\"");
}

TEST_CASE("NCCL_RAS_ADDR") {
  const auto written = [](const char* text) {
    const auto address = parse_ras_address(text);
    return address ? fmt::format("{} {}", address->host, address->port) : "none";
  };
  CHECK(written("localhost:28028") == "localhost 28028");
  CHECK(written("10.0.0.1:65535") == "10.0.0.1 65535");
  CHECK(written("[::1]:12") == "::1 12");
  for (const char* text :
       {"", ":", "localhost", "localhost:", ":12", "a:0", "a:65536", "a:-1", "a:12x", "::1:12", "[::1:12", "[]:12"})
    CHECK(written(text) == "none");
}
