// A thread of a real process makes an inferior call: afterwards it has all that it had before, whatever the call does.
#include <catch2/catch.hpp>

#include <immintrin.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

#include "gpu/inferior_call.h"
#include "gpu/inferior_call_child.h"
#include "target/proc.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

extern "C" __attribute__((noinline)) void test_crashing_callee() { *reinterpret_cast<volatile int*>(8) = 1; }

extern "C" __attribute__((noinline)) void test_endless_callee() {
  while (shared->stop == 0) pause();
}

// The thread stays in it until it is allowed to go on; notes whether a handler ran on top of it.
extern "C" __attribute__((noinline)) void test_slow_callee() {
  shared->in_call = 1;
  while (shared->go == 0) usleep(200);
  shared->handled_in_call = shared->handled.load();
  shared->calls = shared->calls + 1;
}

void handle(int) { shared->handled = shared->handled + 1; }

// ---- what threads do

// Values in callee-saved, caller-saved and vector registers, the flags and the red zone, compared after each wait: of
// all these the kernel changes rax, rcx and r11 in a system call.
void wait_and_compare() {
  while (shared->stop == 0) {
    std::uint64_t wrong = 0;
    asm volatile(
        "mov $0x1122334455667788, %%rax\n mov %%rax, %%r12\n mov %%rax, %%r9\n mov %%rax, %%rbx\n movq %%rax, %%xmm7\n "
        "vpbroadcastq %%xmm7, %%ymm7\n vmovdqa %%ymm7, %%ymm15\n"
        "mov %%rax, -64(%%rsp)\n mov %%rax, -128(%%rsp)\n"
        "mov $7, %%eax\n xor %%edi, %%edi\n xor %%esi, %%esi\n mov $5, %%edx\n stc\n syscall\n"  // poll(nullptr, 0, 5)
        "jnc 2f\n test %%rax, %%rax\n jne 2f\n"
        "mov $0x1122334455667788, %%rax\n"
        "cmp %%rax, %%r12\n jne 2f\n cmp %%rax, %%r9\n jne 2f\n cmp %%rax, %%rbx\n jne 2f\n cmp %%rax, -64(%%rsp)\n "
        "jne 2f\n cmp %%rax, -128(%%rsp)\n jne 2f\n"
        "vpcmpeqq %%ymm7, %%ymm15, %%ymm0\n vmovmskpd %%ymm0, %%edx\n cmp $15, %%edx\n jne 2f\n vmovq %%xmm15, %%rdx\n "
        "cmp %%rax, %%rdx\n jne 2f\n vextracti128 $1, %%ymm15, %%xmm0\n vmovq %%xmm0, %%rdx\n"
        "cmp %%rax, %%rdx\n je 3f\n"
        "2: mov $1, %0\n 3:\n"
        : "+r"(wrong)
        :
        : "rax", "rbx", "rcx", "rdx", "rdi", "rsi", "r9", "r11", "r12", "xmm0", "xmm7", "xmm15", "cc", "memory");
    if (wrong != 0) shared->wrong = shared->wrong + 1;
    shared->rounds = shared->rounds + 1;
  }
}

void wait_for_a_signal() {
  if (pause() == -1 && errno == EINTR) shared->interrupted = 1;
}

// A separate function, because leftovers of older calls on the stack would be in its locals.
__attribute__((noinline)) void block_all_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}
__attribute__((noinline)) void look_at_handler() {
  struct sigaction action {};
  sigaction(SIGSEGV, nullptr, &action);
  shared->handler_kept = action.sa_handler == &handle ? 1 : 0;
}
void wait_with_all_signals_blocked() {
  block_all_signals();
  test_wait_for_end();
  look_at_handler();
}

}  // namespace

TEST_CASE("a thread that waits makes call after call: its wait goes on as if nothing had been") {
  if (is_under_sanitizer()) return;
  Child child({&test_wait_for_end});
  child.wait_in(SYS_poll);
  for (int i = 0; i < 50; ++i) {
    const auto called = gpu::make_inferior_call(child.id(), address_of(&test_callee), kLimit);
    INFO((called ? "" : called.error().message()));
    REQUIRE(called);
    CHECK(called->tid == child.tid());
  }
  CHECK(shared->calls == 50);
  CHECK(child.end() == 7);
}

TEST_CASE("a thread that makes the call keeps its registers, vector registers, flags and red zone") {
  if (__builtin_cpu_supports("avx2") == 0) {
    WARN("skipped: this processor has no AVX2");
    return;
  }
  Child child({&wait_and_compare});
  for (int i = 0; i < 50; ++i) {
    const auto called = gpu::make_inferior_call(child.id(), address_of(&test_callee), kLimit);
    INFO((called ? "" : called.error().message()));
    REQUIRE(called);
  }
  const std::uint64_t rounds = shared->rounds;
  while (shared->rounds < rounds + 10) usleep(1000);
  CHECK(shared->calls == 50);
  CHECK(shared->wrong == 0);
  CHECK(child.end() == 7);
}

TEST_CASE("a thread comes back by itself, with all that it had, when the tool is killed in the middle of the call") {
  if (__builtin_cpu_supports("avx2") == 0) {
    WARN("skipped: this processor has no AVX2");
    return;
  }
  Child child({&wait_and_compare});
  for (int i = 0; i < 10; ++i) {
    shared->in_call = shared->go = 0;
    const pid_t tool = fork();
    if (tool == 0) {
      (void)gpu::make_inferior_call(child.id(), address_of(&test_slow_callee), std::chrono::seconds(60));
      _exit(0);
    }
    while (shared->in_call == 0 && target::proc::process_of(tool)) usleep(100);
    REQUIRE(shared->in_call == 1);
    kill(tool, SIGKILL);
    waitpid(tool, nullptr, 0);
    shared->go = 1;
    const std::uint64_t rounds = shared->rounds;
    while (shared->rounds < rounds + 3) usleep(1000);
  }
  CHECK(shared->calls == 10);
  CHECK(shared->wrong == 0);
  CHECK(child.end() == 7);
}

TEST_CASE("a call that ends by a signal of its own is reported, and the thread is back where it was") {
  if (is_under_sanitizer()) return;
  Child child({&test_wait_for_end});
  child.wait_in(SYS_poll);
  const auto called = gpu::make_inferior_call(child.id(), address_of(&test_crashing_callee), kLimit);
  REQUIRE(!called);
  CHECK(called.error().what == "the call ended by signal 11");
  REQUIRE(gpu::make_inferior_call(child.id(), address_of(&test_callee), kLimit));
  CHECK(child.end() == 7);
  CHECK(shared->wrong == 0);
}

TEST_CASE("a fault in a thread that blocks all signals leaves the process's handler where it is") {
  if (is_under_sanitizer()) return;
  Child child({&wait_with_all_signals_blocked}, {.before = [] { std::signal(SIGSEGV, &handle); }});
  child.wait_in(SYS_poll);
  const auto called = gpu::make_inferior_call(child.id(), address_of(&test_crashing_callee), kLimit);
  REQUIRE(!called);
  CHECK(called.error().what == "the call ended by signal 11");
  CHECK(child.end() == 7);
  CHECK(shared->handler_kept == 1);
  CHECK(shared->handled == 0);
}

TEST_CASE("a call that does not come back is given up") {
  if (is_under_sanitizer()) return;
  Child child({&test_wait_for_end});
  child.wait_in(SYS_poll);
  const auto called =
      gpu::make_inferior_call(child.id(), address_of(&test_endless_callee), std::chrono::milliseconds(100));
  REQUIRE(!called);
  CHECK(called.error().code == ErrorCode::kTimeout);
  const auto again = gpu::make_inferior_call(child.id(), address_of(&test_callee), kLimit);
  INFO((again ? "" : again.error().message()));
  REQUIRE(again);
  CHECK(child.end() == 7);
  CHECK(shared->wrong == 0);
}

TEST_CASE("a signal that comes during the call runs its handler after it, and ends the wait as it would have") {
  Child child({&wait_for_a_signal}, {.before = [] { std::signal(SIGUSR1, &handle); }});
  child.wait_in(SYS_pause);
  const target::ProcessId process = child.id();
  Result<gpu::InferiorCall> called;
  std::thread caller(
      [&] { called = gpu::make_inferior_call(process, address_of(&test_slow_callee), std::chrono::seconds(60)); });
  while (shared->in_call == 0) usleep(100);
  syscall(SYS_tgkill, child.pid(), child.tid(), SIGUSR1);
  shared->go = 1;
  caller.join();
  INFO((called ? "" : called.error().message()));
  REQUIRE(called);
  CHECK(shared->handled_in_call == 0);
  CHECK(child.end() == 7);  // pause() came back by itself
  CHECK(shared->handled == 1);
  CHECK(shared->interrupted == 1);
}
