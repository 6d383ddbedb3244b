#include "unwind/frame_pointer.h"

#include <alloca.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "support/child_process.h"
#include "target/live_target.h"
#include "target/proc.h"
#include "unwind/unwinder.h"

using namespace rankstacks;
using namespace rankstacks::unwind;
using rankstacks::testing::ChildProcess;

namespace {

#define WITH_FRAME_POINTER __attribute__((noinline, optimize("no-omit-frame-pointer")))

WITH_FRAME_POINTER int wait_here(int fd) {
  char c;
  const int n = static_cast<int>(read(fd, &c, 1));
  asm volatile("");
  return n;
}
WITH_FRAME_POINTER int fixed(int fd, int a, int b) {
  volatile char room[200];
  room[0] = static_cast<char>(a);
  const int n = wait_here(fd);
  asm volatile("");
  return n + a * b + room[0];
}
WITH_FRAME_POINTER int nine(int fd, int a, int b, int c, int d, int e, int f, int g, int h) {
  const int n = wait_here(fd);
  asm volatile("");
  return n + a + b + c + d + e + f + g + h;
}
WITH_FRAME_POINTER int passes_on_the_stack(int fd, volatile int* v) {
  const int n = nine(fd, *v, *v, *v, *v, *v, *v, *v, *v);
  asm volatile("");
  return n;
}
char one_byte[1];
WITH_FRAME_POINTER int other(int n) {
  asm volatile("" ::"r"(n));
  return n;
}
// The first call has arguments on the stack; the last one is behind a return.
WITH_FRAME_POINTER int waits_behind_a_return(int fd, volatile int* v) {
  int n = nine(-1, *v, *v, *v, *v, *v, *v, *v, *v);
  if (__builtin_expect(n > 1000, 1)) {
    other(n);
    return n * 3;
  }
  n += static_cast<int>(read(fd, one_byte, 1));
  return n * 7;
}
WITH_FRAME_POINTER int without_room(int fd, volatile int* v) {
  const int n = waits_behind_a_return(fd, v);
  asm volatile("");
  return n;
}
WITH_FRAME_POINTER int chooses(int fd, volatile int* v) {
  int n = nine(-1, *v, *v, *v, *v, *v, *v, *v, *v);
  switch (*v) {
    case 0: return other(n) + 2;
    case 1: n += static_cast<int>(read(fd, one_byte, 1)); break;
    case 2: other(n); break;
    case 3: return other(n) * n;
    case 4: n = other(n) - *v; break;
    case 5: return nine(-1, n, n, n, n, n, n, n, *v);
    case 6: n ^= other(n); break;
    default: return other(-n);
  }
  asm volatile("" ::"r"(n));
  return n * 5;
}
// alloca of a fixed size, on one of two ways that meet behind a call.
WITH_FRAME_POINTER void uses(void* room) { asm volatile("" ::"r"(room) : "memory"); }
WITH_FRAME_POINTER int grows_on_one_way(int fd, volatile int* v) {
  if (__builtin_expect(*v == 7, 0)) uses(alloca(16));
  else uses(one_byte);
  const int n = static_cast<int>(read(fd, one_byte, 1));
  uses(one_byte);
  return n + *v;
}
WITH_FRAME_POINTER int with_room(int fd, volatile int* v) {
  volatile long room[2] = {1, 2};
  const int n = grows_on_one_way(fd, v);
  uses(const_cast<long*>(&room[0]));
  return n + static_cast<int>(room[1]);
}
// Does not return, and has no frame of its own.
extern "C" [[noreturn]] void waits_for_ever(int fd, char* into, std::size_t size, int, int, int, int, int);
asm(R"(
  .text
  .type waits_for_ever, @function
waits_for_ever:
  .cfi_startproc
  xorl %eax, %eax
  syscall
  ud2
  .cfi_endproc
  .size waits_for_ever, .-waits_for_ever
)");
WITH_FRAME_POINTER int chooses_how_to_end(int fd, volatile int* v) {
  const int k = *v + 2;
  switch (k) {
    case 0: other(1); break;
    case 1: waits_for_ever(fd, one_byte, 1, 4, 5, 6, k, fd);
    case 2: other(2); break;
    case 3: waits_for_ever(fd, one_byte, 1, 3, 4, 5, k + 2, fd);
    case 4: other(5); break;
    case 5: other(9); break;
    case 6: waits_for_ever(fd, one_byte, 1, 2, 3, 4, k + 1, fd);
    case 7: other(7); break;
  }
  other(3);
  return fd;
}
WITH_FRAME_POINTER int without_room_of_its_own(int fd, volatile int* v) {
  const int n = chooses_how_to_end(fd, v);
  asm volatile("");
  return n + 1;
}
// As do_futex_wait() of glibc: its frame is the next function's.
WITH_FRAME_POINTER int waits_in_the_end(int fd) { return wait_here(fd); }
WITH_FRAME_POINTER int and_before(int fd) { return waits_in_the_end(fd); }
WITH_FRAME_POINTER int calls_one_that_jumps(int fd, int a) {
  const int n = and_before(fd);
  asm volatile("");
  return n + a;
}
WITH_FRAME_POINTER int variable(int fd, volatile int* size) {
  auto* room = static_cast<char*>(alloca(static_cast<std::size_t>(*size)));
  std::memset(room, 1, static_cast<std::size_t>(*size));
  const int n = static_cast<int>(read(fd, room, 1));
  asm volatile("" ::"r"(room) : "memory");
  return n;
}

struct Seen {
  std::unique_ptr<target::LiveTarget> target;
  target::Registers all;
};

// The registers of a thread that waits in `function`, all of them.
template <class Function>
Seen seen_in(Function function) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  ChildProcess child([&](auto& ready) {
    ready();
    function(ends[0]);
  });
  REQUIRE(child.ready());
  for (int i = 0; i < 100'000; ++i) {
    const auto stat = target::proc::stat_of(child.pid());
    if (stat && stat->state == 'S') break;
    std::this_thread::yield();
  }
  auto target = target::LiveTarget::prepare(child.pid(), target::LiveImages());
  REQUIRE(target);
  Result<void> result;
  std::thread([&] { result = (*target)->capture([] {}); }).join();
  REQUIRE(result);
  close(ends[0]);
  close(ends[1]);
  const auto registers = (*target)->threads().front().registers;
  REQUIRE(registers);
  return {std::move(*target), *registers};
}

target::Registers as_proc_tells(const target::Registers& all) {
  target::Registers few;
  few.set(target::kRsp, all.sp());
  few.set(target::kRip, all.pc());
  few.orig_rax = all.orig_rax;
  few.fs_base = all.fs_base;
  return few;
}

std::vector<Address> pcs(const UnwoundStack& stack) {
  std::vector<Address> found;
  for (const UnwoundFrame& frame : stack.frames) found.push_back(frame.pc);
  return found;
}

}  // namespace

TEST_CASE("a stack of frames of fixed size is the same without the callee-saved registers", "[frame_pointer]") {
  static volatile int one = 1;
  const auto check = [](const Seen& seen) {
    for (const auto make : {&make_libunwind_unwinder, &make_libdwfl_unwinder}) {
      const auto unwinder = make(*seen.target);
      CAPTURE(unwinder->name());
      const UnwoundStack all = unwinder->unwind(seen.all), few = unwinder->unwind(as_proc_tells(seen.all));
      REQUIRE(all.end == StackEnd::kComplete);
      CHECK(few.end == StackEnd::kComplete);
      CHECK(pcs(few) == pcs(all));
    }
  };
  SECTION("fixed") {
    check(seen_in([](int fd) { fixed(fd, 2, 3); }));
  }
  SECTION("behind a return, in a function that also passes arguments on the stack") {
    static int (*volatile by_pointer)(int, volatile int*) = &without_room;
    check(seen_in([](int fd) { by_pointer(fd, &one); }));
  }
  SECTION("in one of the cases of a switch") {
    static int (*volatile by_pointer)(int, volatile int*) = &chooses;
    check(seen_in([](int fd) { by_pointer(fd, &one); }));
  }
  SECTION("behind tail calls") {
    check(seen_in([](int fd) { calls_one_that_jumps(fd, 2); }));
  }
  SECTION("arguments on the stack") {
    check(seen_in([](int fd) { passes_on_the_stack(fd, &one); }));
  }
}

TEST_CASE("where code does not tell which calls return, a stack is right or has no more frames", "[frame_pointer]") {
  static volatile int one = 1;
  static int (*volatile by_pointer)(int, volatile int*) = nullptr;
  by_pointer = GENERATE(&with_room, &without_room_of_its_own);
  const Seen seen = seen_in([](int fd) { by_pointer(fd, &one); });
  for (const auto make : {&make_libunwind_unwinder, &make_libdwfl_unwinder}) {
    const auto unwinder = make(*seen.target);
    CAPTURE(unwinder->name());
    const UnwoundStack all = unwinder->unwind(seen.all), few = unwinder->unwind(as_proc_tells(seen.all));
    REQUIRE(all.end == StackEnd::kComplete);
    if (few.end == StackEnd::kRegistersUnknown) continue;
    CHECK(few.end == StackEnd::kComplete);
    CHECK(pcs(few) == pcs(all));
  }
}

TEST_CASE("a frame of variable size is not guessed", "[frame_pointer]") {
  static volatile int size = 777;
  const Seen seen = seen_in([](int fd) { variable(fd, &size); });
  const auto unwinder = make_libunwind_unwinder(*seen.target);
  const UnwoundStack all = unwinder->unwind(seen.all), few = unwinder->unwind(as_proc_tells(seen.all));
  REQUIRE(all.end == StackEnd::kComplete);
  CHECK(few.end == StackEnd::kRegistersUnknown);
  const auto known = pcs(few), whole = pcs(all);
  REQUIRE(known.size() < whole.size());
  CHECK(std::equal(known.begin(), known.end(), whole.begin()));
}

TEST_CASE("a frame pointer that is known is not derived, and none without a record of a call", "[frame_pointer]") {
  const Seen seen = seen_in([](int fd) { fixed(fd, 2, 3); });
  CHECK_FALSE(derived_frame_pointer(*seen.target, seen.all, true));
  target::Registers elsewhere = as_proc_tells(seen.all);
  const auto frames = make_libunwind_unwinder(*seen.target)->unwind(seen.all).frames;
  REQUIRE(frames.size() > 2);
  // The frame of a caller, with a stack pointer that is not its own.
  elsewhere.set(target::kRip, frames[1].pc);
  elsewhere.set(target::kRsp, frames[1].sp + 64);
  CHECK_FALSE(derived_frame_pointer(*seen.target, elsewhere, false));
}
