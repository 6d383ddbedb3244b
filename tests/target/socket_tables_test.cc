// The tables of this process's own sockets.
#include <fmt/format.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <vector>

#include "support/loopback_socket.h"
#include "target/socket_tables.h"

using namespace rankstacks;
using namespace rankstacks::target;
using namespace rankstacks::testing;

TEST_CASE("a table of sockets that fills several reads is read to its end") {
  constexpr std::size_t kSockets = 150;  // 150 bytes each; a read has a page
  std::vector<FileDescriptor> sockets;
  SocketTables tables;
  // With every size of the table, its last read ends in another place of the page.
  for (std::size_t n = 0; n < kSockets; ++n) {
    sockets.push_back(listening_socket());
    REQUIRE(sockets.back().is_open());
    const auto text = read_socket_table(::getpid(), "tcp");
    REQUIRE(text);
    CHECK(text->ends_with('\n'));
    for (const FileDescriptor& one : sockets) {
      if (text->find(" " + inode_of(one) + " ") != std::string::npos) continue;
      FAIL_CHECK("socket " << inode_of(one) << " is missing of " << sockets.size());
    }
  }
  CHECK(read_socket_table(::getpid(), "none").error().code == ErrorCode::kUnreadable);
}

TEST_CASE("tables of sockets are read once, when they are first needed") {
  SocketTables tables;
  const FileDescriptor first = listening_socket();
  REQUIRE(first.is_open());
  const std::string shown = fmt::format("tcp 127.0.0.1:{} (listening)", port_of(first));
  CHECK(tables.find(::getpid(), inode_of(first)) == shown);
  CHECK(describe_descriptor(::getpid(), first.get(), tables) == shown);
  const SocketTables::Tcp table = tables.tcp(::getpid());
  CHECK(table.was_read_before);
  CHECK(table.v4->find(" " + inode_of(first) + " ") != std::string::npos);

  const FileDescriptor later = listening_socket();
  REQUIRE(later.is_open());
  CHECK_FALSE(tables.find(::getpid(), inode_of(later)).has_value());
  CHECK(describe_descriptor(::getpid(), later.get(), tables) == "socket:[" + inode_of(later) + "]");
  CHECK(tables.tcp(::getpid()).v4 == table.v4);
  SocketTables now;
  const SocketTables::Tcp both = now.tcp(::getpid());
  CHECK_FALSE(both.was_read_before);
  CHECK(both.v4->find(" " + inode_of(later) + " ") != std::string::npos);
  CHECK(both.v6->find("local_address") != std::string::npos);
  CHECK(now.find(::getpid(), inode_of(later)) == fmt::format("tcp 127.0.0.1:{} (listening)", port_of(later)));
}
