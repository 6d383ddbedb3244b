// Pieces of work that return, and pieces that never do.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "base/unattended.h"

namespace rankstacks {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Waits for ever.
void wait_for_ever() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  char byte;
  (void)!read(ends[0], &byte, 1);
}

}  // namespace

TEST_CASE("every piece is done once, and none in the tool's own process") {
  struct Work {
    std::vector<int> done = std::vector<int>(1000);
    std::vector<pid_t> by = std::vector<pid_t>(1000);
  };
  const auto work = std::make_shared<Work>();
  const auto outcomes = Unattended{[work](std::size_t i) {
                                     ++work->done[i];
                                     work->by[i] = getpid();
                                   },
                                   seconds(60)}
                            .run(1000);
  CHECK(std::all_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.came_back; }));
  CHECK(work->done == std::vector<int>(1000, 1));
  CHECK(std::none_of(work->by.begin(), work->by.end(), [](pid_t p) { return p == getpid(); }));
  CHECK(std::set<pid_t>(work->by.begin(), work->by.end()).size() <= std::max(1u, std::thread::hardware_concurrency()));
  CHECK(tool_pid() == getpid());
  CHECK(work.use_count() == 1);  // what the workers own is released with them
}

TEST_CASE("workers leave nothing behind: no thread, no process, no descriptor") {
  const auto run = [] {
    (void)Unattended{[](std::size_t) { close(open("/dev/null", O_RDONLY | O_CLOEXEC)); }, seconds(60)}.run(8);
  };
  run();
  const int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(before);
  for (int i = 0; i < 50; ++i) run();
  const int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(after);
  CHECK(before == after);
  // In a process without other workers: tests before this one have left some behind on purpose.
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 10; ++i) run();
    _exit(waitpid(-1, nullptr, __WALL | WNOHANG) == -1 && errno == ECHILD ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("a worker shares descriptors and memory with the tool") {
  struct Opened {
    int descriptor = -1;
    std::string text;
  };
  const auto opened = std::make_shared<Opened>();
  (void)Unattended{[opened](std::size_t) {
                     opened->descriptor = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
                     opened->text.assign(1 << 20, 'x');
                     std::thread([opened] { opened->text += "y"; }).join();
                   },
                   seconds(60)}
      .run(1);
  CHECK(fcntl(opened->descriptor, F_GETFD) == FD_CLOEXEC);
  CHECK(opened->text.size() == (1 << 20) + 1);
  close(opened->descriptor);
}

TEST_CASE("a piece that does not return is given up, and the pieces after it are done") {
  std::atomic<int> given_up{0};
  const auto done = std::make_shared<std::atomic<int>>(0);
  const auto start = std::chrono::steady_clock::now();
  const auto outcomes = Unattended{
      [done](std::size_t i) {
        reading_now("file " + std::to_string(i));
        if (i % 10 == 3) wait_for_ever();
        ++*done;
      },
      milliseconds(200),
      [&](std::size_t i, const Outcome& outcome) {
        CHECK(i % 10 == 3);
        CHECK(outcome.file == "file " + std::to_string(i));
        ++given_up;
      }}.run(40);
  CHECK(std::chrono::steady_clock::now() - start < seconds(30));
  CHECK(given_up == 4);
  CHECK(*done == 36);
  for (std::size_t i = 0; i < 40; ++i) CHECK(outcomes[i].came_back == (i % 10 != 3));
  CHECK(any_given_up());
}

TEST_CASE("of pieces without a limit, those that stay in one wait are given up, and those that go on are not") {
  std::vector<std::size_t> given_up;
  const auto silence = milliseconds(400);
  const auto outcomes = Unattended{.work =
                                       [silence](std::size_t i) {
                                         if (i == 0) wait_for_ever();
                                         const auto end = std::chrono::steady_clock::now() + 2 * silence;
                                         while (std::chrono::steady_clock::now() < end)
                                           if (i == 1) std::this_thread::sleep_for(milliseconds(1));
                                       },
                                   .given_up = [&](std::size_t i, const Outcome&) { given_up.push_back(i); },
                                   .silence = silence}
                            .run(3);
  CHECK(given_up == std::vector<std::size_t>{0});
  CHECK((!outcomes[0].came_back && outcomes[1].came_back && outcomes[2].came_back));
}

TEST_CASE("a crash of a worker is a crash of the tool") {
  for (const int number : {SIGSEGV, 0}) {
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGSEGV, SIG_DFL);
      (void)Unattended{[number](std::size_t) { number == 0 ? _exit(7) : (void)raise(number); }, seconds(60)}.run(2);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (number == 0) CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
    else CHECK((WIFSIGNALED(status) && WTERMSIG(status) == number));
  }
}

TEST_CASE("the tool ends, and closes its pipes, while a piece has not returned") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const pid_t child = fork();
  if (child == 0) {
    (void)Unattended{[](std::size_t) { wait_for_ever(); }, milliseconds(50)}.run(2);
    end_at_once(any_given_up() ? 3 : 4);
  }
  close(ends[1]);
  char byte;
  CHECK(read(ends[0], &byte, 1) == 0);  // end of file: no process has it open for writing any more
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 3));
}

}  // namespace rankstacks
