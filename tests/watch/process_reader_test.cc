#include "watch/process_reader.h"

#include <unistd.h>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "support/child_process.h"
#include "target/proc.h"
#include "target/run_time.h"

namespace rankstacks::watch {
namespace {

constexpr int kRuns = 30;  // of each thread, at least

// Starts four threads for an 's', ends them for an 'e'; writes a byte when that is done, and waits for the next one.
void start_and_end_threads(int orders, int done) {
  char order;
  while (read(orders, &order, 1) == 1) {
    std::promise<void> end;
    const std::shared_future<void> ended = end.get_future();
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; ++n)
      threads.emplace_back([ended, done] {
        for (int i = 0; i < kRuns; ++i) std::this_thread::sleep_for(std::chrono::microseconds(200));
        (void)!write(done, "s", 1);
        ended.wait();
      });
    (void)!read(orders, &order, 1);
    end.set_value();
    for (std::thread& thread : threads) thread.join();
    (void)!write(done, "e", 1);
  }
}

// As it is where each file is opened anew.
std::int64_t runs_of(Pid pid) {
  std::int64_t runs = 0;
  for (const Tid tid : target::proc::tasks_of(pid))
    if (const auto time = target::run_time_of(pid, tid)) runs += time->runs;
  return runs;
}

TEST_CASE("runs of threads that come and go count as long as they are there") {
  int orders[2], done[2];
  REQUIRE((pipe(orders) == 0 && pipe(done) == 0));
  testing::ChildProcess child([&](auto& ready) {
    ready();
    start_and_end_threads(orders[0], done[1]);
  });
  REQUIRE(child.ready());
  if (runs_of(child.pid()) == 0) {
    WARN("skipped: the kernel does not count how often threads run (/proc/PID/schedstat)");
    return;
  }
  const auto wait_for = [&](int bytes) {
    char byte;
    while (bytes-- > 0) REQUIRE(read(done[0], &byte, 1) == 1);
  };
  ProcessReader reader;
  reader.add_rank({.pid = child.pid()});
  // The child falls asleep soon after its last byte.
  const auto runs_read = [&] {
    for (int i = 0; i < 1'000; ++i) {
      const std::int64_t before = runs_of(child.pid());
      const std::int64_t read = reader.read().processes.at(0).counters.runs;
      if (before == read && runs_of(child.pid()) == read) return read;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::int64_t{-1};
  };
  std::int64_t least = 1;
  for (int turn = 0; turn < 3; ++turn) {
    const std::int64_t alone = runs_read();
    REQUIRE(alone >= least);
    REQUIRE(write(orders[1], "s", 1) == 1);
    wait_for(4);
    const std::int64_t together = runs_read();
    CHECK(together >= alone + 4 * kRuns);
    REQUIRE(write(orders[1], "e", 1) == 1);
    wait_for(1);
    const std::int64_t after = runs_read();
    CHECK(after < together);
    CHECK(after > alone);
    least = alone + 1;
  }
  // As many threads as at the reading before, and others.
  REQUIRE(write(orders[1], "s", 1) == 1);
  wait_for(4);
  const std::int64_t first = runs_read();
  REQUIRE(first > 0);
  REQUIRE(write(orders[1], "es", 2) == 2);
  wait_for(5);
  CHECK(runs_read() > 0);
}

TEST_CASE("runs of a thread that has long been idle count a few readings later") {
  int orders[2], done[2];
  REQUIRE((pipe(orders) == 0 && pipe(done) == 0));
  testing::ChildProcess child([&](auto& ready) {
    std::thread idle([&] {
      char order;
      while (read(orders[0], &order, 1) == 1) {
        for (int i = 0; i < kRuns; ++i) std::this_thread::sleep_for(std::chrono::microseconds(200));
        (void)!write(done[1], &order, 1);
      }
    });
    ready();
    idle.join();
  });
  REQUIRE(child.ready());
  if (runs_of(child.pid()) == 0) {
    WARN("skipped: the kernel does not count how often threads run (/proc/PID/schedstat)");
    return;
  }
  ProcessReader reader;
  reader.add_rank({.pid = child.pid()});
  const auto runs = [&] { return reader.read().processes.at(0).counters.runs; };
  int late = 0;
  for (int turn = 0; turn < 8; ++turn) {
    for (int i = 0; i < 1'000 && runs() != runs_of(child.pid()); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int n = 0; n < 20 + turn; ++n) {
      runs();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const std::int64_t before = runs();
    REQUIRE(write(orders[1], "x", 1) == 1);
    char byte;
    REQUIRE(read(done[0], &byte, 1) == 1);
    for (int n = 0; n < 3; ++n) late += runs() < before + kRuns;
    CHECK(runs() >= before + kRuns);
  }
  CHECK(late > 0);
}

}  // namespace
}  // namespace rankstacks::watch
