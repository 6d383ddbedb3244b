#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "target/glances.h"
#include "target/proc.h"

using namespace rankstacks;
using namespace rankstacks::target;
using namespace std::chrono_literals;

namespace {

__attribute__((noinline)) void doze(std::chrono::microseconds how_long) {
  volatile char depth = 0;
  std::this_thread::sleep_for(how_long);
  depth = depth + 1;
}

// The same wait, two hundred bytes deeper in the stack.
__attribute__((noinline)) void doze_deeper(std::chrono::microseconds how_long) {
  volatile char room[200];
  room[0] = 0;
  doze(how_long);
  room[1] = room[0];
}

// A thread that waits again and again, either at one place only or from time to time at another one.
class Waiter {
 public:
  explicit Waiter(bool has_two)
      : thread_([this, has_two] {
          tid = static_cast<Tid>(syscall(SYS_gettid));
          while (!end) {
            for (int i = 0; i < 10; ++i) doze(2ms);
            if (has_two) doze_deeper(4ms);
          }
        }) {
    while (tid == 0) std::this_thread::yield();
  }
  ~Waiter() {
    end = true;
    thread_.join();
  }
  std::atomic<Tid> tid = 0;

 private:
  std::atomic<bool> end = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("a thread that waits at two places is glanced at once at each", "[glances]") {
  if (!target::proc::read_file("/proc/self/syscall")) {
    WARN("skipped: this kernel does not report where threads wait (/proc/PID/syscall)");
    return;
  }
  for (const bool has_two : {true, false}) {
    const Waiter waiter(has_two);
    Glances glances;
    CHECK(glances.empty());
    glances.follow(getpid(), waiter.tid);
    CHECK_FALSE(glances.empty());
    // Other values on the stack may distinguish places too: what certainly differs between the two waits is the stack
    // pointer.
    const auto stack_pointers = [&] {
      std::set<Address> found;
      for (std::size_t n = 0; n < Glances::kMaxPlaces; ++n)
        for (const Glance& glance : glances.of(getpid(), n)) found.insert(glance.registers.sp());
      return found;
    };
    const auto end = std::chrono::steady_clock::now() + (has_two ? 30s : 1s);
    while (std::chrono::steady_clock::now() < end && stack_pointers().size() < 2)
      glances.glance_until(std::chrono::steady_clock::now() + 20ms);
    CHECK(stack_pointers().size() == (has_two ? 2 : 1));
    const auto first = glances.of(getpid(), 0);
    REQUIRE(first.size() == 1);
    CHECK(first[0].tid == waiter.tid);
    CHECK(first[0].registers.orig_rax == SYS_clock_nanosleep);
    CHECK(glances.of(1, 0).empty());
  }
}

// A thread that comes back to the same place with another stack: two numbers, 16 KiB apart, that are equal whenever it
// waits, and differ while it runs.
class Counter {
 public:
  Counter()
      : thread_([this] {
          prctl(PR_SET_TIMERSLACK, 1);
          count();
        }) {
    while (tid == 0) std::this_thread::yield();
  }
  ~Counter() {
    end_ = true;
    thread_.join();
  }
  std::atomic<Tid> tid = 0;
  std::atomic<Address> first = 0;
  static constexpr std::size_t kWords = 2048;

 private:
  __attribute__((noinline)) void count() {
    volatile std::uint64_t numbers[kWords];
    numbers[0] = 0;
    numbers[kWords - 1] = 0;
    first = reinterpret_cast<Address>(&numbers[0]);
    tid = static_cast<Tid>(syscall(SYS_gettid));
    for (std::uint64_t n = 1; !end_; ++n) {
      numbers[0] = n;
      const auto until = std::chrono::steady_clock::now() + 20us;
      while (std::chrono::steady_clock::now() < until) {}
      numbers[kWords - 1] = n;
      std::this_thread::sleep_for(n % 32 == 0 ? 100us : 10us);  // nearly all glances are of the longer ones
    }
  }
  std::atomic<bool> end_ = false;
  std::thread thread_;
};

TEST_CASE("the stack of a glance is of one moment", "[glances]") {
  if (!target::proc::read_file("/proc/self/syscall")) {
    WARN("skipped: this kernel does not report where threads wait (/proc/PID/syscall)");
    return;
  }
  const Counter counter;
  int whole = 0, of_two_moments = 0;
  const auto number = [](const Glance& glance, Address at) -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    if (at < glance.stack_start || at - glance.stack_start + sizeof value > glance.stack.size()) return std::nullopt;
    std::memcpy(&value, glance.stack.data() + (at - glance.stack_start), sizeof value);
    return value;
  };
  for (int i = 0; i < 2'000; ++i) {
    Glances glances;
    glances.follow(getpid(), counter.tid);
    glances.glance_until(std::chrono::steady_clock::now());
    glances.glance_until(std::chrono::steady_clock::now() + 200us);
    for (const Glance& glance : glances.of(getpid(), 0)) {
      const auto first = number(glance, counter.first);
      const auto last = number(glance, counter.first + (Counter::kWords - 1) * sizeof(std::uint64_t));
      if (!first || !last) continue;
      ++(*first == *last ? whole : of_two_moments);
    }
  }
  INFO(whole << " glances");
  CHECK(whole > 0);
  CHECK(of_two_moments == 0);
}

TEST_CASE("glances are made for some time also where it is late", "[glances]") {
  if (!target::proc::read_file("/proc/self/syscall")) {
    WARN("skipped: this kernel does not report where threads wait (/proc/PID/syscall)");
    return;
  }
  const Waiter waiter(false);
  Glances late;
  late.follow(getpid(), waiter.tid);
  late.glance_until(std::chrono::steady_clock::now() - 1s);
  CHECK(late.of(getpid(), 0).empty());
  for (int i = 0; i < 100 && late.of(getpid(), 0).empty(); ++i)
    late.glance_until(std::chrono::steady_clock::now() - 1s, 50ms);
  CHECK(late.of(getpid(), 0).size() == 1);
}

TEST_CASE("there is no glance of a thread that is gone", "[glances]") {
  Tid tid = 0;
  std::thread([&] { tid = static_cast<Tid>(syscall(SYS_gettid)); }).join();
  Glances glances;
  glances.follow(getpid(), tid);
  glances.glance_until(std::chrono::steady_clock::now() + 5ms);
  CHECK(glances.of(getpid(), 0).empty());
}

TEST_CASE("the registers in /proc/PID/task/TID/syscall", "[glances]") {
  const auto registers = target::proc::parse_syscall("230 0x0 0x1 0x7ffc10 0x2 0x3 0x4 0x7ffbf0 0x7f60830ed545\n");
  REQUIRE(registers);
  CHECK(registers->orig_rax == 230);
  CHECK((*registers)[kRsi] == 1);
  CHECK((*registers)[kRdx] == 0x7ffc10);
  CHECK(registers->sp() == 0x7ffbf0);
  CHECK(registers->pc() == 0x7f60830ed545);
  CHECK_FALSE(registers->has(kRbp));
  CHECK_FALSE(target::proc::parse_syscall("running\n"));
  CHECK_FALSE(target::proc::parse_syscall("-1 0x7ffbf0 0x7f60830ed545\n"));  // it waits, but not in a system call
  CHECK_FALSE(target::proc::parse_syscall("230 0x0 0x1\n"));
  CHECK_FALSE(target::proc::parse_syscall(""));
}
