#include "target/still_threads.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "support/child_process.h"
#include "target/live_target.h"
#include "target/proc.h"

using namespace rankstacks;
using namespace rankstacks::target;
using rankstacks::testing::ChildProcess;

namespace {

void block() {
  int fds[2];
  char c;
  if (pipe(fds) == 0) (void)!read(fds[0], &c, 1);
}

// Waits, for a bounded time, until all threads of the process are asleep.
bool all_sleep(pid_t pid, std::size_t threads) {
  for (int i = 0; i < 100'000; ++i) {
    const auto tids = proc::tasks_of(pid);
    const auto sleeps = [&](Tid tid) {
      const auto stat = proc::stat_of(pid, tid);
      return stat && stat->state == 'S';
    };
    if (tids.size() == threads && std::all_of(tids.begin(), tids.end(), sleeps)) return true;
    std::this_thread::yield();
  }
  return false;
}

Result<std::unique_ptr<LiveTarget>> capture(
    pid_t pid, const StopChoice& choice, const std::function<void()>& walk = [] {}) {
  auto target = LiveTarget::prepare(pid, LiveImages());
  if (!target) return target;
  Result<void> result;
  std::thread([&] { result = (*target)->capture(walk, {}, choice); }).join();
  if (!result) return fail(result.error());
  return target;
}

// A process of which each thread but the first waits for a byte, again and again.
class Wakeable {
 public:
  explicit Wakeable(std::size_t waiting)
      : waiting_(waiting), has_pipe_(pipe(wake_) == 0), child_([&](auto& ready) {
          for (std::size_t i = 0; i < waiting; ++i)
            std::thread([&] {
              char c;
              while (read(wake_[0], &c, 1) == 1) {}
            }).detach();
          ready();
          block();
        }) {}
  ~Wakeable() {
    close(wake_[0]);
    close(wake_[1]);
  }
  Wakeable(const Wakeable&) = delete;
  Wakeable& operator=(const Wakeable&) = delete;

  pid_t pid() const { return child_.pid(); }
  bool is_asleep() const { return has_pipe_ && child_.ready() && all_sleep(pid(), waiting_ + 1); }
  bool wake_one() const { return write(wake_[1], "x", 1) == 1; }
  // Lets each waiting thread run once: the one that has waited longest is waked first (Linux 5.5; before, all are).
  bool run_all() const {
    for (std::size_t i = 0; i < waiting_; ++i)
      if (!wake_one() || !is_asleep()) return false;
    return true;
  }
  // Whether /proc has them: otherwise all threads are stopped.
  bool shows_registers() const { return see_threads(pid(), proc::tasks_of(pid())).refused == 0; }

 private:
  std::size_t waiting_;
  int wake_[2] = {-1, -1};
  bool has_pipe_;
  ChildProcess child_;
};

constexpr std::size_t kFar = 1 << 20;  // farther than what is copied around a word
volatile int words[kFar + 1];

constexpr const char* kNoFile = "skipped: no /proc/PID/task/TID/syscall here";

}  // namespace

TEST_CASE("threads that sleep have not run, and a thread that was woken has", "[still_threads]") {
  const Wakeable child(1);
  REQUIRE(child.is_asleep());
  const auto tids = proc::tasks_of(child.pid());
  const SeenThreads seen = see_threads(child.pid(), tids);
  if (seen.refused != 0) {
    WARN(kNoFile);
    return;
  }
  REQUIRE(seen.threads.size() == 2);
  CHECK(number_of_threads(child.pid()) == 2);
  for (const SeenThread& thread : seen.threads) {
    REQUIRE(thread.registers);
    CHECK(thread.registers->has(kRsp));
    CHECK_FALSE(thread.registers->has(kRbp));
    CHECK_FALSE(thread.registers->has(kRbx));
  }
  CHECK(ran_since(child.pid(), seen).empty());
  REQUIRE(child.wake_one());
  for (int i = 0; i < 100'000 && ran_since(child.pid(), seen).empty(); ++i) std::this_thread::yield();
  CHECK(ran_since(child.pid(), seen) == std::vector<Tid>{tids[1]});
  // Seen again: of the one that has stood nothing but its count is read, the other is looked at anew.
  REQUIRE(child.is_asleep());
  const SeenThreads again = see_threads(child.pid(), tids, seen);
  REQUIRE(again.threads.size() == 2);
  CHECK(again.threads[0].schedstat == seen.threads[0].schedstat);
  CHECK(again.threads[0].registers->sp() == seen.threads[0].registers->sp());
  CHECK(again.threads[0].registers->pc() == seen.threads[0].registers->pc());
  if (seen.threads[1].schedstat) CHECK_FALSE(again.threads[1].schedstat == seen.threads[1].schedstat);
  CHECK_FALSE(again.threads[1].count == seen.threads[1].count);
  CHECK(again.threads[1].registers);
  CHECK(ran_since(child.pid(), again).empty());
}

TEST_CASE("without the kernel's count of runs, the numbers of switches are compared", "[still_threads]") {
  ChildProcess child([&](auto& ready) {
    ready();
    block();
  });
  REQUIRE(child.ready());
  REQUIRE(all_sleep(child.pid(), 1));
  SeenThreads seen = see_threads(child.pid(), {child.pid()});
  if (seen.refused != 0) {
    WARN(kNoFile);
    return;
  }
  REQUIRE(seen.threads.size() == 1);
  const auto voluntary = proc::thread_status_number(child.pid(), child.pid(), "voluntary_ctxt_switches");
  const auto others = proc::thread_status_number(child.pid(), child.pid(), "nonvoluntary_ctxt_switches");
  REQUIRE((voluntary && others));
  seen.threads[0].count = {RunCount::Of::kSwitches, static_cast<std::uint64_t>(*voluntary + *others)};
  CHECK(ran_since(child.pid(), seen).empty());
  --seen.threads[0].count.count;
  CHECK(ran_since(child.pid(), seen).size() == 1);
}

TEST_CASE("a process that sleeps is captured without a stop", "[still_threads]") {
  ChildProcess child([](auto& ready) {
    for (int i = 0; i < 5; ++i) std::thread(block).detach();
    ready();
    block();
  });
  REQUIRE(child.ready());
  REQUIRE(all_sleep(child.pid(), 6));
  for (const StopPolicy policy : {StopPolicy::kAuto, StopPolicy::kNever}) {
    int walks = 0;
    const auto target = capture(child.pid(), {policy, {}}, [&] { ++walks; });
    REQUIRE(target);
    if ((*target)->method() == ReadMethod::kStopped) {
      WARN(kNoFile);
      return;
    }
    CHECK(walks == 1);
    CHECK((*target)->method() == ReadMethod::kWithoutStop);
    CHECK((*target)->stopped_ms() == 0);
    CHECK((*target)->threads_stopped() == 0);
    CHECK((*target)->cuts().empty());
    REQUIRE((*target)->threads().size() == 6);
    for (const ThreadInfo& thread : (*target)->threads()) {
      CHECK(thread.problem.empty());
      REQUIRE(thread.registers);
      CHECK((*target)->read_value<Address>(thread.registers->sp()));
      // glibc's: the thread pointer is known all the same.
      Address self = 0;
      CHECK(proc::read_memory(child.pid(), thread.registers->fs_base, std::as_writable_bytes(std::span(&self, 1))));
      CHECK(self == thread.registers->fs_base);
    }
  }
}

TEST_CASE("threads that are named are stopped, and no others", "[still_threads]") {
  ChildProcess child([](auto& ready) {
    for (int i = 0; i < 3; ++i) std::thread(block).detach();
    ready();
    block();
  });
  REQUIRE(child.ready());
  REQUIRE(all_sleep(child.pid(), 4));
  const Tid named = proc::tasks_of(child.pid())[2];
  const auto target = capture(child.pid(), {StopPolicy::kAuto, {named}});
  REQUIRE(target);
  if ((*target)->method() == ReadMethod::kStopped) {
    WARN(kNoFile);
    return;
  }
  CHECK((*target)->method() == ReadMethod::kPartlyStopped);
  CHECK((*target)->threads_stopped() == 1);
  CHECK((*target)->stopped_ms() > 0);
  for (const ThreadInfo& thread : (*target)->threads()) {
    REQUIRE(thread.registers);
    CHECK(thread.registers->has(kRbp) == (thread.tid == named));
  }
  CHECK(proc::status_number(child.pid(), "TracerPid") == 0);
}

TEST_CASE("a copy that was made while a thread ran is dropped, and made again", "[still_threads]") {
  const Wakeable child(1);
  REQUIRE(child.is_asleep());
  int walks = 0;
  const auto runs = [&](Tid tid) {
    return proc::read_file(fmt::format("/proc/{}/task/{}/schedstat", child.pid(), tid));
  };
  const Tid woken = proc::tasks_of(child.pid())[1];
  const auto target = capture(child.pid(), {StopPolicy::kAuto, {}}, [&] {
    if (++walks > 1) return;
    const auto before = runs(woken);
    REQUIRE(child.wake_one());
    for (int i = 0; i < 100'000; ++i) {
      const auto now = runs(woken);
      if (!before || !now || *now != *before) break;
      std::this_thread::yield();
    }
  });
  REQUIRE(target);
  if ((*target)->method() != ReadMethod::kStopped) CHECK(walks > 1);
  CHECK((*target)->cuts().empty());
}

namespace {

// So that threads of a busy machine have the time to sleep again.
CopyLimits patient() {
  CopyLimits limits;
  limits.longest = std::chrono::minutes(1);
  return limits;
}

}  // namespace

TEST_CASE("few threads that run again and again are not stopped, many are", "[still_threads]") {
  const std::size_t many = GENERATE(1u, 9u);
  const Wakeable process(many);
  REQUIRE(process.is_asleep());
  if (!process.shows_registers()) {
    WARN(kNoFile);
    return;
  }
  auto target = LiveTarget::prepare(process.pid(), LiveImages());
  REQUIRE(target);
  int walks = 0;
  Result<void> result;
  std::thread([&] {
    result = (*target)->capture(
        [&] {
          ++walks;
          // In the first reading; and in the second, which goes on as its walk lacks something.
          if (walks == 1 || walks == 3) REQUIRE(process.run_all());
          if (walks > 1) (void)(*target)->read_value<int>(reinterpret_cast<Address>(&words[kFar]));
        },
        patient(), {StopPolicy::kAuto, {}});
  }).join();
  REQUIRE(result);
  CHECK(walks == 4);
  CHECK((*target)->cuts().empty());
  CHECK((*target)->method() == (many == 1 ? ReadMethod::kWithoutStop : ReadMethod::kPartlyStopped));
  CHECK((*target)->threads_stopped() == (many == 1 ? 0 : many));
  for (const ThreadInfo& thread : (*target)->threads()) CHECK(thread.registers);
}

TEST_CASE("what a walk lacks that begins after the comparison is read, and compared once more", "[still_threads]") {
  words[kFar] = 2;
  const Wakeable process(1);
  REQUIRE(process.is_asleep());
  if (!process.shows_registers()) {
    WARN(kNoFile);
    return;
  }
  const StopPolicy policy = GENERATE(StopPolicy::kAuto, StopPolicy::kNever);
  const bool runs_once_more = GENERATE(false, true);
  auto target = LiveTarget::prepare(process.pid(), LiveImages());
  REQUIRE(target);
  int walks = 0;
  std::vector<std::optional<int>> read;
  Result<void> result;
  std::thread([&] {
    result = (*target)->capture(
        [&] {
          ++walks;
          if (walks == 1 || (walks == 3 && runs_once_more)) REQUIRE(process.run_all());
          if (walks > 1) read.push_back((*target)->read_value<int>(reinterpret_cast<Address>(&words[kFar])));
        },
        patient(), {policy, {}});
  }).join();
  REQUIRE(result);
  CHECK((*target)->method() == ReadMethod::kWithoutStop);
  CHECK((*target)->cuts().empty());
  std::vector<std::optional<int>> expected = {std::nullopt, 2};
  if (runs_once_more) expected.push_back(2);
  CHECK(read == expected);
  for (const ThreadInfo& thread : (*target)->threads()) CHECK(thread.registers);
}

TEST_CASE("a thread that spins: stopped alone, or without registers", "[still_threads]") {
  words[kFar] = 2;
  static std::atomic<bool> runs{true};
  ChildProcess child([](auto& ready) {
    std::thread(block).detach();
    ready();
    while (runs) {}
  });
  REQUIRE(child.ready());
  auto target = capture(child.pid(), {StopPolicy::kAuto, {}});
  REQUIRE(target);
  CHECK((*target)->threads().front().registers);
  CHECK((*target)->threads_stopped() >= 1);
  target = LiveTarget::prepare(child.pid(), LiveImages());
  REQUIRE(target);
  int walks = 0;
  std::optional<int> word;
  Result<void> result;
  std::thread([&] {
    result = (*target)->capture(
        [&] {
          if (++walks > 1) word = (*target)->read_value<int>(reinterpret_cast<Address>(&words[kFar]));
        },
        {}, {StopPolicy::kNever, {}});
  }).join();
  REQUIRE(result);
  // What nobody had wanted before the last walk is read for it.
  CHECK(walks == 2);
  CHECK(word == 2);
  CHECK((*target)->threads_stopped() == 0);
  CHECK_FALSE((*target)->threads().front().registers);
  CHECK_FALSE((*target)->threads().front().problem.empty());
  CHECK_FALSE((*target)->cuts().empty());
}

TEST_CASE("a process that changes all the time is never read in the middle of a change", "[still_threads]") {
  // Two words of different pages that are equal whenever the thread sleeps, and that differ in between.
  static std::array<volatile int, 4096> words{};
  ChildProcess child([](auto& ready) {
    std::thread(block).detach();
    ready();
    while (true) {
      const int next = words[0] + 1;
      words[0] = next;
      words[2048] = next;
      usleep(1);
    }
  });
  REQUIRE(child.ready());
  int without_stop = 0, with_stop = 0;
  for (int i = 0; i < 100; ++i) {
    std::optional<int> first, second;
    LiveTarget* reading = nullptr;
    auto target = LiveTarget::prepare(child.pid(), LiveImages());
    REQUIRE(target);
    reading = target->get();
    Result<void> result;
    std::thread([&] {
      result = reading->capture(
          [&] {
            first = reading->read_value<int>(reinterpret_cast<Address>(&words[0]));
            second = reading->read_value<int>(reinterpret_cast<Address>(&words[2048]));
          },
          {}, {StopPolicy::kAuto, {}});
    }).join();
    REQUIRE(result);
    REQUIRE((first && second));
    const ThreadInfo& thread = reading->threads().front();
    REQUIRE(thread.registers);
    // Asleep, it has finished the change; stopped, it may be between the two.
    if (reading->threads_stopped() == 0) {
      CHECK(*first == *second);
      ++without_stop;
    } else {
      CHECK((*first == *second || *first == *second + 1));
      ++with_stop;
    }
  }
  CHECK(without_stop + with_stop == 100);
}

TEST_CASE("the copy of a stop is walked when the threads run again, or inside of the stop if it lacks something",
          "[still_threads]") {
  static std::atomic<bool> runs{true};
  alignas(4096) static volatile int words[2048] = {0, 1};
  words[1024] = 2;
  ChildProcess child([](auto& ready) {
    std::thread(block).detach();
    ready();
    while (runs) {}
  });
  REQUIRE(child.ready());
  const bool needs_more = GENERATE(false, true);
  auto target = LiveTarget::prepare(child.pid(), LiveImages());
  REQUIRE(target);
  std::vector<bool> traced;
  std::optional<int> first, second;
  Result<void> result;
  std::thread([&] {
    result = (*target)->capture(
        [&] {
          traced.push_back(proc::thread_status_number(child.pid(), child.pid(), "TracerPid") != 0);
          first = (*target)->read_value<int>(reinterpret_cast<Address>(&words[1]));
          second.reset();
          // As if Python had moved on since the first walk.
          if (needs_more && traced.size() > 1)
            second = (*target)->read_value<int>(reinterpret_cast<Address>(&words[1024]));
        },
        {}, {StopPolicy::kAuto, {}});
  }).join();
  REQUIRE(result);
  if ((*target)->method() == ReadMethod::kStopped) {
    WARN(kNoFile);
    return;
  }
  CHECK((*target)->threads_stopped() == 1);
  CHECK(first == 1);
  if (needs_more) {
    CHECK(traced == std::vector<bool>{false, false, false, true});
    CHECK(second == 2);
  } else {
    CHECK(traced == std::vector<bool>{false, false});
  }
}

TEST_CASE("a walk that had no time is made again on the copy, and a cut is reported only if that lacks something",
          "[still_threads]") {
  words[1] = 1;
  words[kFar] = 2;
  ChildProcess child([](auto& ready) {
    ready();
    block();
  });
  REQUIRE(child.ready());
  REQUIRE(all_sleep(child.pid(), 1));
  const bool needs_more = GENERATE(false, true);
  const StopPolicy policy = GENERATE(StopPolicy::kAuto, StopPolicy::kNever, StopPolicy::kAlways);
  const bool stops = policy == StopPolicy::kAlways;
  auto target = LiveTarget::prepare(child.pid(), LiveImages());
  REQUIRE(target);
  CopyLimits limits;
  limits.longest = std::chrono::seconds(1);
  int walks = 0;
  std::optional<int> first, second;
  Result<void> result;
  std::thread([&] {
    result = (*target)->capture(
        [&] {
          first = (*target)->read_value<int>(reinterpret_cast<Address>(&words[1]));
          const Deadline until = (*target)->walks_until();
          if (walks++ == 0) {
            while (!until.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          } else if (needs_more) {
            second = (*target)->read_value<int>(reinterpret_cast<Address>(&words[kFar]));
          }
        },
        limits, {policy, {}});
  }).join();
  REQUIRE(result);
  if (!stops && (*target)->method() != ReadMethod::kWithoutStop) {
    WARN(kNoFile);
    return;
  }
  CHECK(walks == 2);
  CHECK(first == 1);
  CHECK(!second);
  const auto& cuts = (*target)->cuts();
  REQUIRE(cuts.size() == (needs_more ? 1u : 0u));
  if (needs_more)
    CHECK(cuts[0].message.starts_with(stops ? "it was resumed after 1." : "reading it was given up after 1."));
}
