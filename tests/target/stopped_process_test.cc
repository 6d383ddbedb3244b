#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "support/child_process.h"
#include "target/proc.h"
#include "target/stopped_process.h"

using namespace rankstacks;
using namespace rankstacks::target;
using rankstacks::testing::ChildProcess;

namespace {

struct Counts {
  std::atomic<bool> enough;
  std::atomic<int> sent, handled, ended;
};
Counts* counts = nullptr;  // shared with the children

}  // namespace

// The critical moment: a thread is stopped with a signal about to be delivered to it, and the tool is gone.
TEST_CASE("a tool that is killed while threads are stopped loses none of their signals") {
  counts =
      static_cast<Counts*>(mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(counts != MAP_FAILED);
  new (counts) Counts{};
  ChildProcess child([](auto& ready) {
    std::signal(SIGRTMIN, [](int) { counts->handled++; });
    ready();
    while (!counts->enough) {
      counts->sent++;
      raise(SIGRTMIN);  // handled before it returns
    }
    counts->ended++;
    pause();
  });
  REQUIRE(child.ready());
  const auto stat = target::proc::stat_of(child.pid());
  REQUIRE(stat);
  int stopped_with_a_signal = 0;
  for (int round = 0; round < 300; ++round) {
    const pid_t tool = fork();
    REQUIRE(tool >= 0);
    if (tool == 0) {
      auto stopped = StoppedProcess::stop(child.pid(), stat->start_ticks, {});
      if (stopped) stopped->read_signals();
      const bool pending = stopped && stopped->threads().front().pending_signal != 0;
      if (pending) kill(getpid(), SIGKILL);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(tool, &status, 0) == tool);
    stopped_with_a_signal += WIFSIGNALED(status) ? 1 : 0;
  }
  counts->enough = true;
  while (counts->ended == 0) usleep(1000);
  CHECK(stopped_with_a_signal > 0);
  CHECK(counts->sent == counts->handled);
  munmap(counts, sizeof(Counts));
}

TEST_CASE("threads that get no processor are distinguished from a process that is gone or traced by another") {
  const auto on_processor = [](int number) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(number, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
  };
  // In the real-time class as well: to threads of other classes the kernel reserves a part of each second.
  ChildProcess child([&](auto& ready) {
    const sched_param priority{.sched_priority = 1};
    on_processor(0);
    sched_setscheduler(0, SCHED_FIFO, &priority);
    ready();
    while (true) pause();
  });
  REQUIRE(child.ready());
  const auto stat = target::proc::stat_of(child.pid());
  REQUIRE(stat);
  // The child wakes up for its stop while its processor is taken by the holder, from the moment when the other thread
  // is about to stop the child. That thread has a processor of its own, so that the test works on a busy machine too.
  std::atomic<bool> at_stop = false, holds = false, enough = false;
  std::atomic<bool> permitted = true;
  std::thread holder([&] {
    const sched_param priority{.sched_priority = 2};
    permitted = on_processor(0) && sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
    while (!at_stop) usleep(1000);
    holds = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(850);
    while (permitted && !enough && std::chrono::steady_clock::now() < end) {}
  });
  std::optional<Error> error;
  bool elsewhere = false;
  std::thread([&] {
    const sched_param priority{.sched_priority = 2};
    elsewhere = on_processor(1) && sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
    at_stop = true;
    while (!holds) usleep(100);
    if (!permitted || !elsewhere) return;
    const auto stopped = StoppedProcess::stop(child.pid(), stat->start_ticks, {});
    if (!stopped) error = stopped.error();
  }).join();
  enough = true;
  holder.join();
  if (!permitted || !elsewhere) {
    WARN("skipped: needs two processors and the right to the real-time class");
    return;
  }
  REQUIRE(error);
  CHECK(error->code == ErrorCode::kTimeout);
  CHECK(error->os_errno == 0);
  CHECK(error->message().find("none of its 1 threads could be stopped: tid") != std::string::npos);
  CHECK(error->message().find("(state R)") != std::string::npos);
  CHECK(error->hint.starts_with("it gets no processor"));
  CHECK(target::proc::status_number(child.pid(), "TracerPid") == 0);
}

TEST_CASE("a process whose only thread is in an uninterruptible wait is reported as such") {
  ChildProcess child([](auto& ready) {
    if (vfork() == 0) {  // the parent waits, in state D, until this one ends
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ready();
      while (true) pause();
    }
  });
  REQUIRE(child.ready());
  auto stat = target::proc::stat_of(child.pid());
  while (stat && stat->state != 'D') stat = target::proc::stat_of(child.pid());
  REQUIRE(stat);
  std::optional<Error> error;
  std::thread([&] {  // its end releases what it has seized
    const auto stopped = StoppedProcess::stop(child.pid(), stat->start_ticks, {});
    if (!stopped) error = stopped.error();
  })
      .join();
  REQUIRE(error);
  CHECK(error->code == ErrorCode::kTimeout);
  CHECK(error->message().find("(state D)") != std::string::npos);
  CHECK(error->hint.find(fmt::format("/proc/{0}/task/{0}/stack", child.pid())) != std::string::npos);
  CHECK(target::proc::status_number(child.pid(), "TracerPid") == 0);
}

TEST_CASE("threads of one process that are stopped long after the first are stopped as well") {
  ChildProcess child([](auto& ready) {
    std::thread([] {
      while (true) pause();
    }).detach();
    ready();
    while (true) pause();
  });
  REQUIRE(child.ready());
  const auto stat = target::proc::stat_of(child.pid());
  REQUIRE(stat);
  const auto tids = target::proc::tasks_of(child.pid());
  REQUIRE(tids.size() == 2);
  std::thread([&] {
    StoppedProcess held(child.pid());
    CHECK(held.stop_also(stat->start_ticks, {tids[0]}));
    usleep(1'300'000);  // an exec may take a second of each stop
    CHECK(held.stop_also(stat->start_ticks, {tids[1]}));
    for (const auto& thread : held.threads()) CHECK(thread.problem.empty());
    CHECK(held.resume() > 0);
  }).join();
  CHECK(target::proc::status_number(child.pid(), "TracerPid") == 0);
}
