#include "unwind/glanced_stack.h"

#include <unistd.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>

#include "support/child_process.h"
#include "target/glances.h"
#include "target/proc.h"

using namespace rankstacks;
using namespace rankstacks::unwind;
using namespace std::chrono_literals;

namespace {

// Waits with a frame pointer, and without.
template <class Wait>
__attribute__((noinline, optimize("no-omit-frame-pointer"))) void wait_with_pointer(Wait wait) {
  volatile char room[100];
  room[0] = 0;
  wait();
  room[1] = room[0];
}

template <class Wait>
__attribute__((noinline, optimize("omit-frame-pointer"))) void wait_without_pointer(Wait wait) {
  volatile char room[100];
  room[0] = 0;
  wait();
  room[1] = room[0];
}

// Leaves frame pointers and return addresses on the part of the stack that the calls after it will use.
__attribute__((noinline, optimize("no-omit-frame-pointer"))) int leave_pairs(int depth) {
  volatile char room[8];
  room[0] = static_cast<char>(depth);
  return depth == 0 ? room[0] : leave_pairs(depth - 1) + room[0];
}

// The functions are distinguished by their addresses; no tail calls.
__attribute__((noinline, aligned(256))) void doze() {
  usleep(2000);
  asm volatile("");
}
__attribute__((noinline, aligned(256))) void doze_with_pointer() {
  wait_with_pointer(doze);
  asm volatile("");
}
__attribute__((noinline, aligned(256))) void doze_without_pointer() {
  wait_without_pointer(doze);
  asm volatile("");
}

}  // namespace

TEST_CASE("a glance of a running thread is unwound to its end after the thread is gone", "[glanced_stack]") {
  if (!target::proc::read_file("/proc/self/syscall")) {
    WARN("skipped: this kernel does not report where threads wait (/proc/PID/syscall)");
    return;
  }
  for (const bool pointer : {false, true}) {
    INFO((pointer ? "with" : "without") << " a frame pointer");
    std::vector<target::Glance> seen;
    target::LiveImages images;
    std::unique_ptr<target::LiveTarget> process;
    {
      const testing::ChildProcess child([&](const auto& ready) {
        ready();
        for (;;) {
          volatile int left = leave_pairs(20);
          (void)left;
          if (pointer) wait_with_pointer(doze_with_pointer);
          else wait_without_pointer(doze_without_pointer);
        }
      });
      target::Glances glances;
      glances.follow(child.pid(), child.pid());
      const auto end = std::chrono::steady_clock::now() + 30s;
      while (std::chrono::steady_clock::now() < end && glances.of(child.pid(), 0).empty())
        glances.glance_until(std::chrono::steady_clock::now() + 20ms);
      seen = glances.of(child.pid(), 0);
      auto prepared = target::LiveTarget::prepare(child.pid(), images);
      REQUIRE(prepared);
      process = std::move(*prepared);
    }
    const target::GlancedTarget target(std::move(process), std::move(seen));
    REQUIRE(target.threads().size() == 1);
    CHECK_FALSE(target.threads()[0].registers->has(target::kRbp));
    const auto stack = unwind_glance(target, *target.threads()[0].registers);
    REQUIRE(stack);
    // The frames between usleep and the child's main function: doze, and the three functions that call it.
    const auto place_of = [&](auto* function) {
      const auto start = reinterpret_cast<Address>(function);
      return std::find_if(stack->frames.begin(), stack->frames.end(),
                          [&](const UnwoundFrame& f) { return f.pc > start && f.pc < start + 256; }) -
             stack->frames.begin();
    };
    const auto innermost = place_of(&doze);
    CHECK(innermost < static_cast<std::ptrdiff_t>(stack->frames.size()));
    CHECK(place_of(pointer ? &doze_with_pointer : &doze_without_pointer) == innermost + 2);
  }
}
