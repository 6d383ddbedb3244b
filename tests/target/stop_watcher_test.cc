// The thread that watches a stop: it reaps threads that have ended, and nothing else.
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>

#include "support/child_process.h"
#include "target/stop_watcher.h"

namespace rankstacks::target {
namespace {

// Several times the interval between two rounds of the watcher.
constexpr int kSeveralRoundsMs = 150;

void wait_for_ever(const std::function<void()>& ready) {
  ready();
  while (true) ::pause();
}

// The wait status of the child's stop; std::nullopt if none comes because it was already reaped.
std::optional<int> stop_of(pid_t pid) {
  for (int round = 0; round < 1000; ++round) {
    int status = 0;
    if (waitpid(pid, &status, __WALL | WNOHANG) == pid) return status;
    poll(nullptr, 0, 10);
  }
  return std::nullopt;
}

// A child that waits, and the watcher of that child.
struct Seized {
  const testing::ChildProcess child{wait_for_ever};
  StopWatcher watcher{child.pid()};

  // False if the test is skipped, with a message.
  bool begin() {
    REQUIRE(child.ready());
    if (watcher.seize(child.pid()) == 0) return true;
    WARN("skipped: a process may not trace its own child here");
    return false;
  }
};

}  // namespace

TEST_CASE("a requested stop is left for the thread that requested it") {
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

TEST_CASE("a signal that is being delivered to a thread is left for its delivery") {
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

TEST_CASE("a thread that has ended is reaped, so that nothing waits for it") {
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

}  // namespace rankstacks::target
