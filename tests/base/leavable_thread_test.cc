#include "base/leavable_thread.h"
#include "base/unattended.h"

#include <sys/select.h>
#include <unistd.h>
#include <atomic>
#include <catch2/catch.hpp>

using namespace rankstacks;

namespace {

LeavableThread::Clock::time_point in_a_minute() { return LeavableThread::Clock::now() + std::chrono::minutes(1); }

}  // namespace

TEST_CASE("work that returns is done, and its effects are visible") {
  int sum = 0;
  bool first = false;
  LeavableThread thread([&] { first = true; });
  thread.start([&] {
    thread.blocking([&] { sum += 1; });
    sum += 2;
  });
  REQUIRE(thread.wait_until(in_a_minute()));
  CHECK(first);
  CHECK(sum == 3);
  CHECK_FALSE(thread.leave_behind());
}

TEST_CASE("a thread that never gets work ends with its owner") { const LeavableThread thread; }

TEST_CASE("work can be left behind only inside of a blocking call, and never continues after that call") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::atomic<int> at{0};
  std::atomic<bool> may_go_on{false};
  {
    LeavableThread thread;
    thread.start([&] {
      at = 1;
      while (!may_go_on) usleep(1000);
      thread.blocking([from = ends[0]] {
        char byte = 0;
        (void)!read(from, &byte, 1);
      });
      at = 2;
    });
    while (at != 1) usleep(1000);
    CHECK_FALSE(thread.leave_behind());
    CHECK_FALSE(thread.wait_until(LeavableThread::Clock::now() + std::chrono::milliseconds(20)));
    may_go_on = true;
    while (!thread.leave_behind()) usleep(1000);
    CHECK(any_given_up());
  }
  // The call returns after its owner has gone: that shows in the pipe, which is empty again.
  REQUIRE(write(ends[1], "x", 1) == 1);
  fd_set set;
  timeval none{};
  do {
    usleep(1000);
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
  } while (select(ends[0] + 1, &set, nullptr, nullptr, &none) == 1);
  usleep(20'000);  // enough time for what must not happen
  CHECK(at == 1);
  close(ends[0]);
  close(ends[1]);
}
