// What real processes are blocked on, by tables that are older than they are.
#include <asm/unistd_64.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <thread>

#include "capture/find_ends.h"
#include "support/child_process.h"
#include "support/loopback_socket.h"
#include "target/proc.h"

using namespace rankstacks;
using namespace rankstacks::capture;
using namespace rankstacks::testing;

TEST_CASE("a socket that is newer than the tables that the capture has read") {
  constexpr int kSocket = 100;
  target::SocketTables old, unread;
  REQUIRE_FALSE(old.tcp(::getpid()).v4->empty());
  const ChildProcess child([&](const auto& ready) {
    const FileDescriptor listener = listening_socket();
    ::dup2(listener.get(), kSocket);
    ready();
    (void)!::accept4(kSocket, nullptr, nullptr, 0);
  });
  REQUIRE(child.ready());
  const auto accepts = [&] {
    const auto call = target::proc::waiting_registers(child.pid(), child.pid());
    return call && call->orig_rax == __NR_accept4;
  };
  while (!accepts()) std::this_thread::yield();
  const BlockedThread thread{
      child.pid(),
      child.pid(),
      {.what = target::Awaited::What::kInput, .fd = kSocket, .number = __NR_accept4, .first_argument = kSocket}};
  for (target::SocketTables* const tables : {&old, &unread}) {
    const auto found = find_ends({thread}, {child.pid()}, *tables);
    REQUIRE(found.size() == 1);
    CHECK(found[0].kind == EndKind::kSocket);
    CHECK(found[0].listens);
  }
}
