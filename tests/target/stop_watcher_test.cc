// The thread beside a stop: it takes away what ended, and nothing else.
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child_process.h"
#include "target/stop_watcher.h"

namespace rankstacks {
namespace {

// Several times what the watcher waits between two rounds.
constexpr int kSeveralRoundsMs = 150;

void wait_for_ever(const std::function<void()>& ready) {
  ready();
  while (true) ::pause();
}

// The status of its stop; nothing: none comes, somebody else has taken it.
std::optional<int> stop_of(pid_t pid) {
  for (int round = 0; round < 1000; ++round) {
    int status = 0;
    if (waitpid(pid, &status, __WALL | WNOHANG) == pid) return status;
    poll(nullptr, 0, 10);
  }
  return std::nullopt;
}

// A child that waits, and the watcher of it.
struct Seized {
  const testing::ChildProcess child{wait_for_ever};
  StopWatcher watcher{child.pid(), StopWatcher::Clock::now() + std::chrono::minutes(1)};

  // False: skipped, which is said.
  bool begin() {
    REQUIRE(child.ready());
    if (watcher.seize(child.pid()) == 0) return true;
    WARN("skipped: a process may not trace its own child here");
    return false;
  }
};

}  // namespace

TEST_CASE("a stop that was asked for is left to who asked for it") {
  Seized seized;
  if (!seized.begin()) return;
  const testing::ChildProcess& child = seized.child;
  REQUIRE(ptrace(PTRACE_INTERRUPT, child.pid(), nullptr, nullptr) == 0);
  poll(nullptr, 0, kSeveralRoundsMs);
  const auto status = stop_of(child.pid());
  REQUIRE(status);
  CHECK(WIFSTOPPED(*status));
  CHECK(*status >> 16 == PTRACE_EVENT_STOP);
}

TEST_CASE("a signal on its way to a thread is left there") {
  Seized seized;
  if (!seized.begin()) return;
  const testing::ChildProcess& child = seized.child;
  REQUIRE(kill(child.pid(), SIGUSR1) == 0);
  poll(nullptr, 0, kSeveralRoundsMs);
  const auto status = stop_of(child.pid());
  REQUIRE(status);
  CHECK(WIFSTOPPED(*status));
  CHECK(WSTOPSIG(*status) == SIGUSR1);
}

TEST_CASE("what ended is taken away, so that nobody waits for it") {
  Seized seized;
  if (!seized.begin()) return;
  const testing::ChildProcess& child = seized.child;
  REQUIRE(kill(child.pid(), SIGKILL) == 0);
  bool gone = false;
  for (int round = 0; round < 1000 && !gone; ++round) {
    gone = kill(child.pid(), 0) != 0 && errno == ESRCH;
    poll(nullptr, 0, 10);
  }
  CHECK(gone);
}

}  // namespace rankstacks
