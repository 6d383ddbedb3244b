// Both unwinders on real child processes: known call chains, compared with each other frame by frame.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "support/child_process.h"
#include "target/live_target.h"
#include "target/proc.h"
#include "unwind/unwinder.h"

using namespace rankstacks;
using namespace rankstacks::unwind;
using rankstacks::testing::ChildProcess;

namespace {

// Functions of known size and frames: sanitizers would add calls and frames of their own.
#define PLAIN __attribute__((noinline, no_sanitize("address", "undefined")))

std::function<void()> g_ready;

// Blocks for ever, observably so: the other end of the pipe stays open in this process itself.
PLAIN void block() {
  int fds[2];
  char c;
  if (pipe(fds) == 0) (void)!read(fds[0], &c, 1);
}

PLAIN void innermost() {
  g_ready();
  block();
  asm volatile("");
}
PLAIN void middle() {
  innermost();
  asm volatile("");
}
PLAIN void outermost() {
  middle();
  asm volatile("");
}

PLAIN long deep(long n) {
  if (n == 0) {
    innermost();
    return 0;
  }
  const long below = deep(n - 1);
  asm volatile("" ::: "memory");
  return below + 1;
}

PLAIN void handler(int) {
  g_ready();
  block();
  asm volatile("");
}

PLAIN void null_handler(int) {
  g_ready();
  block();
  asm volatile("");
}
void (*volatile g_null)() = nullptr;
PLAIN void calls_null() {
  g_null();
  asm volatile("");
}

PLAIN void on_made_stack() {
  g_ready();
  block();
  asm volatile("");
}

struct Captured {
  std::unique_ptr<target::LiveTarget> target;
  UnwoundStack libunwind, libdwfl;
};

Captured capture(pid_t pid) {
  static target::LiveImages images;
  Captured c;
  auto target = target::LiveTarget::prepare(pid, images);
  REQUIRE(target);
  std::thread([&] { REQUIRE((*target)->capture([] {})); }).join();
  c.target = std::move(*target);
  const auto& thread = c.target->threads().front();
  REQUIRE(thread.registers);
  c.libunwind = make_libunwind_unwinder(*c.target)->unwind(*thread.registers);
  c.libdwfl = make_libdwfl_unwinder(*c.target)->unwind(*thread.registers);
  CHECK(target::proc::status_number(pid, "TracerPid") == 0);
  return c;
}

bool inside(Address pc, void (*function)()) {
  const auto start = reinterpret_cast<Address>(function);
  return pc > start && pc < start + 256;
}

std::vector<Address> pcs(const UnwoundStack& s) {
  std::vector<Address> out;
  for (const auto& f : s.frames) out.push_back(f.pc);
  return out;
}

// The place where two stacks differ, as text: a comparison of whole vectors would print thousands of addresses.
std::string difference(const UnwoundStack& a, const UnwoundStack& b) {
  const auto x = pcs(a), y = pcs(b);
  for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i)
    if (i >= x.size() || i >= y.size() || x[i] != y[i])
      return "frame " + std::to_string(i) + " of " + std::to_string(x.size()) + " and " + std::to_string(y.size());
  return "";
}

std::size_t find_frame(const UnwoundStack& s, void (*function)()) {
  for (std::size_t i = 0; i < s.frames.size(); ++i)
    if (inside(s.frames[i].pc, function)) return i;
  return std::size_t(-1);
}

}  // namespace

TEST_CASE("a plain chain is unwound to its end, with the same result of both unwinders") {
  ChildProcess child([](auto& ready) {
    g_ready = ready;
    outermost();
  });
  REQUIRE(child.ready());
  const Captured c = capture(child.pid());
  CHECK(c.libunwind.end == StackEnd::kComplete);
  CHECK(difference(c.libunwind, c.libdwfl) == "");
  CHECK(c.libdwfl.end == StackEnd::kComplete);
  const std::size_t at = find_frame(c.libunwind, innermost);
  REQUIRE(at + 2 < c.libunwind.frames.size());
  CHECK(inside(c.libunwind.frames[at + 1].pc, middle));
  CHECK(inside(c.libunwind.frames[at + 2].pc, outermost));
  for (std::size_t i = 0; i + 1 < c.libunwind.frames.size(); ++i)
    CHECK(c.libunwind.frames[i].cfa == c.libunwind.frames[i + 1].sp);
}

TEST_CASE("the frames below a signal handler are looked up at their exact pc") {
  ChildProcess child([](auto& ready) {
    g_ready = ready;
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
  });
  REQUIRE(child.ready());
  const Captured c = capture(child.pid());
  CHECK(c.libunwind.end == StackEnd::kComplete);
  CHECK(difference(c.libunwind, c.libdwfl) == "");
  const std::size_t at = find_frame(c.libunwind, reinterpret_cast<void (*)()>(handler));
  REQUIRE(at + 2 < c.libunwind.frames.size());
  CHECK(c.libunwind.frames[at + 1].exact_pc);  // the trampoline
  CHECK(c.libunwind.frames[at + 2].exact_pc);  // what the signal interrupted
  CHECK_FALSE(c.libunwind.frames[at + 3].exact_pc);
}

TEST_CASE(
    "a call through a null pointer, sampled in the handler on an alternate stack: the caller is recovered and marked") {
  ChildProcess child([](auto& ready) {
    g_ready = ready;
    stack_t alternate{};
    alternate.ss_size = 1 << 16;
    alternate.ss_sp = mmap(nullptr, alternate.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&alternate, nullptr);
    struct sigaction action {};
    action.sa_handler = null_handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    calls_null();
  });
  REQUIRE(child.ready());
  const Captured c = capture(child.pid());
  CHECK(c.libunwind.end == StackEnd::kComplete);
  std::size_t null_frame = std::size_t(-1);
  for (std::size_t i = 0; i < c.libunwind.frames.size(); ++i)
    if (c.libunwind.frames[i].pc == 0) null_frame = i;
  REQUIRE(null_frame + 1 < c.libunwind.frames.size());
  CHECK(c.libunwind.frames[null_frame].exact_pc);
  CHECK(inside(c.libunwind.frames[null_frame + 1].pc, calls_null));
  CHECK(c.libunwind.frames[null_frame + 1].origin == FrameOrigin::kReturnSlot);
}

TEST_CASE("a value in the place of a return address is no frame unless it points to code") {
  ChildProcess child([](auto& ready) {
    g_ready = ready;
    static std::uint64_t no_code = 0;
    static std::uint64_t made_stack[8192] __attribute__((aligned(16)));
    std::uint64_t* top = made_stack + 8190;
    top[-1] = reinterpret_cast<std::uint64_t>(&no_code);
    asm volatile("mov %0, %%rsp; jmp *%1" ::"r"(top - 1), "r"(&on_made_stack) : "memory");
    __builtin_unreachable();
  });
  REQUIRE(child.ready());
  const Captured c = capture(child.pid());
  for (const UnwoundStack* stack : {&c.libunwind, &c.libdwfl}) {
    CHECK(stack->end == StackEnd::kNoUnwindInfo);
    CHECK(find_frame(*stack, on_made_stack) == stack->frames.size() - 1);
  }
}

TEST_CASE("a stack deeper than the limit keeps both ends and says how much is left out") {
  ChildProcess child([](auto& ready) {
    g_ready = ready;
    deep(20'000);
  });
  REQUIRE(child.ready());
  const Captured c = capture(child.pid());
  CHECK(c.libunwind.end == StackEnd::kDepthLimit);
  REQUIRE(c.libunwind.omitted);
  CHECK(c.libunwind.frames.size() == kMaxFrames);
  CHECK(c.libunwind.omitted->at == kMaxFrames / 2);
  CHECK(c.libunwind.omitted->count + kMaxFrames > 20'000);
  CHECK(find_frame(c.libunwind, innermost) < 10);
  // The outermost frame is the start of the program.
  CHECK(c.libunwind.frames.back().cfa == 0);
  CHECK(difference(c.libunwind, c.libdwfl) == "");
}
