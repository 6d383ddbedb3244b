// Each state in which a thread must not make an inferior call: the reason is given, and the process is unchanged.
#include <catch2/catch.hpp>

#include <alloca.h>
#include <dlfcn.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gpu/inferior_call.h"
#include "gpu/inferior_call_child.h"
#include "target/proc.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

// The reason why this thread is not used; also checks that nothing has happened to it.
std::string refusal(const Child& child, Tid tid) {
  const auto called = gpu::call_in(child.id(), tid, address_of(&test_callee), kLimit);
  REQUIRE(!called);
  CHECK(shared->calls == 0);
  CHECK_FALSE(called.error().hint.empty());
  CHECK_FALSE(target::proc::tracer_of(child.pid(), tid));
  return called.error().what;
}

constexpr const char* kOtherStack = "cannot be used for the call: on another stack than its own";
constexpr const char* kLittleRoom = "cannot be used for the call: with less than 128 KiB left of its stack";

// ---- what threads do

void sleep_in_condition() {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&mutex);
  pthread_cond_wait(&condition, &mutex);
}

void run_for_ever() {
  while (shared->stop == 0) shared->rounds = shared->rounds + 1;
}

void write_into_full_pipe() {
  int ends[2];
  if (pipe(ends) != 0) _exit(3);
  std::vector<char> bytes(1 << 20);
  (void)!write(ends[1], bytes.data(), bytes.size());
}

pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t held_rwlock = PTHREAD_RWLOCK_INITIALIZER;
void hold_locks() {
  pthread_mutex_lock(&held_mutex);
  pthread_rwlock_wrlock(&held_rwlock);
}
void wait_for_mutex() { pthread_mutex_lock(&held_mutex); }
void wait_for_rwlock() { pthread_rwlock_rdlock(&held_rwlock); }

void wait_in_handler(bool on_signal_stack) {
  static char memory[512 * 1024];
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = sizeof memory;
  if (on_signal_stack) sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = [](int) { test_wait_for_end(); };
  action.sa_flags = on_signal_stack ? SA_ONSTACK : 0;
  sigaction(SIGUSR2, &action, nullptr);
  raise(SIGUSR2);
}
void wait_in_handler_on_own_stack() { wait_in_handler(false); }
void wait_in_handler_on_signal_stack() { wait_in_handler(true); }

void wait_in_coroutine() {
  static ucontext_t thread, coroutine;
  getcontext(&coroutine);
  constexpr std::size_t kSize = 512 * 1024;
  coroutine.uc_stack.ss_sp = std::malloc(kSize);
  coroutine.uc_stack.ss_size = kSize;
  coroutine.uc_link = &thread;
  makecontext(&coroutine, &test_wait_for_end, 0);
  swapcontext(&thread, &coroutine);
}

__attribute__((noinline)) void wait_deep(std::size_t bytes) {
  auto* const used = static_cast<volatile char*>(alloca(bytes));
  for (std::size_t i = 0; i < bytes; i += 1024) used[i] = 0;
  test_wait_for_end();
  used[0] = 1;
}
void wait_after_200_kib() { wait_deep(200 * 1024); }
void wait_after_2_mib() { wait_deep(2 * 1024 * 1024); }

int load(const char* library, const char* function) {
  const std::string path = std::string(RANKSTACKS_BUILD "/tests/") + library;
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  if (handle == nullptr) _exit(4);
  if (function != nullptr) reinterpret_cast<void (*)()>(dlsym(handle, function))();
  return 0;
}
void wait_in_constructor() { load("libwaiting_constructor.so", nullptr); }
void wait_in_allocator() { load("libwaiting_allocator.so", "wait_in_allocator"); }

// A stream of the program, into which the C library writes from within malloc_info.
void wait_in_malloc_info() {
  const cookie_io_functions_t functions{.read = nullptr,
                                        .write =
                                            [](void* waited, const char*, std::size_t size) {
                                              if (int& once = *static_cast<int*>(waited); once++ == 0)
                                                test_wait_for_end();
                                              return static_cast<ssize_t>(size);
                                            },
                                        .seek = nullptr,
                                        .close = nullptr};
  int waited = 0;
  FILE* const stream = fopencookie(&waited, "w", functions);
  setvbuf(stream, nullptr, _IONBF, 0);
  malloc_info(0, stream);
  fclose(stream);
}

void wait_in_walk_over_libraries() {
  dl_iterate_phdr(
      [](dl_phdr_info*, std::size_t, void*) {
        test_wait_for_end();
        return 1;
      },
      nullptr);
}

void wait_under_filter() {
  sock_filter allow_all[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog program{1, allow_all};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    shared->wrong = 100;
  test_wait_for_end();
}

// System calls from outside of the given code would go to user space if the selector said so; it does not.
void wait_dispatched() {
  static volatile char selector = 0;
  constexpr int kSetSyscallUserDispatch = 59, kOn = 1;
  if (prctl(kSetSyscallUserDispatch, kOn, 0, 0, &selector) != 0) shared->wrong = 100;
  test_wait_for_end();
}

// A stack of 64 KiB in the middle of other memory of the same mapping.
void* stack_in_the_middle(std::size_t& size) {
  size = 64 * 1024;
  void* const memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return static_cast<char*>(memory) + (1 << 19);
}

// A guard page 64 KiB below the upper end, which the list of mappings does not show (Linux 6.13).
void* stack_with_guard_inside(std::size_t& size) {
  constexpr int kGuardInstall = 102;
  size = 512 * 1024;
  auto* const memory =
      static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (madvise(memory + size - 64 * 1024, 4096, kGuardInstall) != 0) shared->wrong = 100;
  return memory;
}

}  // namespace

TEST_CASE("a process that is gone, another one under its pid, and a thread that has ended are not touched") {
  target::ProcessId gone;
  {
    Child child({&test_wait_for_end});
    gone = child.id();
    child.wait_in(SYS_poll);

    const target::ProcessId earlier{gone.pid, gone.start_ticks - 1};
    for (const auto& called : {gpu::make_inferior_call(earlier, address_of(&test_callee), kLimit),
                               gpu::call_in(earlier, child.tid(), address_of(&test_callee), kLimit)}) {
      REQUIRE(!called);
      CHECK(called.error().code == ErrorCode::kGone);
      CHECK(called.error().message() ==
            "pid " + std::to_string(gone.pid) + ": it has ended, and its pid belongs to another process now");
    }
    const Tid not_its_own = static_cast<Tid>(syscall(SYS_gettid));
    const auto unrelated = gpu::call_in(gone, not_its_own, address_of(&test_callee), kLimit);
    REQUIRE(!unrelated);
    CHECK(unrelated.error().code == ErrorCode::kGone);
    CHECK(unrelated.error().what == "cannot be used for the call: ended");
    CHECK(shared->calls == 0);
    CHECK(child.end() == 7);
  }
  const auto called = gpu::make_inferior_call(gone, address_of(&test_callee), kLimit);
  REQUIRE(!called);
  CHECK(called.error().code == ErrorCode::kGone);
  CHECK(called.error().message() == "pid " + std::to_string(gone.pid) + ": it has ended");
}

TEST_CASE("a thread that ended meanwhile") {
  Child child({[] {}, &test_wait_for_end});
  const Tid ended = child.tid(0);
  while (target::proc::process_of(ended)) usleep(200);
  CHECK(refusal(child, ended) == "cannot be used for the call: ended");
  CHECK(child.end() == 7);
}

TEST_CASE("the main thread is never used, though it waits") {
  Child child({&test_wait_for_end});
  child.wait_in(SYS_poll);
  CHECK(refusal(child, child.pid()) == "cannot be used for the call: the main thread");
  CHECK(child.end() == 7);
}

TEST_CASE("a thread that runs, or is in a system call that is no plain wait") {
  Child runs({&run_for_ever});
  CHECK(refusal(runs, runs.tid()) == "cannot be used for the call: running");
  CHECK(runs.end() == 7);
  Child writes({&write_into_full_pipe});
  writes.wait_in(SYS_write);
  CHECK(refusal(writes, writes.tid()) == "cannot be used for the call: in a system call that is no plain wait (write)");
}

TEST_CASE("a thread that waits for a lock, whatever its system call looks like") {
  Child child({&wait_for_mutex, &wait_for_rwlock}, {.before = &hold_locks});
  child.wait_in(SYS_futex, 0);
  child.wait_in(SYS_futex, 1);
  CHECK(refusal(child, child.tid(0)) == "cannot be used for the call: waiting for a lock");
  CHECK(refusal(child, child.tid(1)) ==
        "cannot be used for the call: waiting for a lock (pthread_rwlock_rdlock of libc.so.6)");
}

TEST_CASE("a thread on a signal's stack, or in a handler on its own") {
  if (is_under_sanitizer()) return;
  Child elsewhere({&wait_in_handler_on_signal_stack});
  elsewhere.wait_in(SYS_poll);
  CHECK(refusal(elsewhere, elsewhere.tid()) == kOtherStack);
  CHECK(elsewhere.end() == 7);
  Child here({&wait_in_handler_on_own_stack});
  here.wait_in(SYS_poll);
  CHECK(refusal(here, here.tid()) == "cannot be used for the call: in a signal handler");
  CHECK(here.end() == 7);
}

TEST_CASE("a thread in a coroutine") {
  Child child({&wait_in_coroutine});
  child.wait_in(SYS_poll);
  CHECK(refusal(child, child.tid()) == kOtherStack);
  CHECK(child.end() == 7);
}

TEST_CASE("a thread with little of its stack left, or much of it to look through") {
  Child small({&wait_after_200_kib}, {.stack = 256 * 1024});
  small.wait_in(SYS_poll);
  CHECK(refusal(small, small.tid()) == kLittleRoom);
  CHECK(small.end() == 7);
  Child large({&wait_after_2_mib});
  large.wait_in(SYS_poll);
  CHECK(refusal(large, large.tid()) == "cannot be used for the call: with more than 1 MiB of its stack in use");
  CHECK(large.end() == 7);
}

TEST_CASE("a stack that ends inside of its mapping: by the block that the program gave it, by a guard page in it") {
  Child given({&test_wait_for_end}, {.in_memory = &stack_in_the_middle});
  given.wait_in(SYS_poll);
  CHECK(refusal(given, given.tid()) == kLittleRoom);
  CHECK(given.end() == 7);
  Child guarded({&test_wait_for_end}, {.in_memory = &stack_with_guard_inside});
  if (shared->wrong != 0) {
    WARN("skipped: this kernel has no guard pages inside of a mapping (Linux 6.13)");
    return;
  }
  guarded.wait_in(SYS_poll);
  CHECK(refusal(guarded, guarded.tid()) == kLittleRoom);
  CHECK(guarded.end() == 7);
}

TEST_CASE("a thread in the loader") {
  if (is_under_sanitizer()) return;
  Child constructs({&wait_in_constructor});
  constructs.wait_in(SYS_poll);
  CHECK(refusal(constructs, constructs.tid()) ==
        "cannot be used for the call: in the dynamic loader (ld-linux-x86-64.so.2)");
  CHECK(constructs.end() == 7);
  Child walks({&wait_in_walk_over_libraries});
  walks.wait_in(SYS_poll);
  CHECK(refusal(walks, walks.tid()) ==
        "cannot be used for the call: in the dynamic loader (dl_iterate_phdr of libc.so.6)");
  CHECK(walks.end() == 7);
}

TEST_CASE("a thread in the allocator, the C library's or another") {
  if (is_under_sanitizer()) return;
  Child inside({&wait_in_malloc_info});
  inside.wait_in(SYS_poll);
  CHECK(refusal(inside, inside.tid()) ==
        "cannot be used for the call: in the memory allocator (malloc_info of libc.so.6)");
  CHECK(inside.end() == 7);
  Child other({&wait_in_allocator});
  other.wait_in(SYS_poll);
  CHECK(refusal(other, other.tid()) ==
        "cannot be used for the call: in the memory allocator (libwaiting_allocator.so)");
  CHECK(other.end() == 7);
}

TEST_CASE("a thread under a filter that others do not have") {
  Child child({&wait_under_filter});
  child.wait_in(SYS_poll);
  if (shared->wrong != 0) {
    WARN("skipped: no seccomp filter can be set here");
    return;
  }
  CHECK(refusal(child, child.tid()) ==
        "cannot be used for the call: under a seccomp filter of its own (1 filters, others have 0)");
  CHECK(child.end() == 7);
}

TEST_CASE("a thread whose system calls go to user space") {
  Child child({&wait_dispatched});
  child.wait_in(SYS_poll);
  if (shared->wrong != 0) {
    WARN("skipped: no dispatch of system calls to user space here (Linux 5.11)");
    return;
  }
  CHECK(refusal(child, child.tid()) == "cannot be used for the call: with its system calls dispatched to user space");
  CHECK(child.end() == 7);
}

TEST_CASE("a process that is stopped, and a thread that is traced") {
  Child child({&test_wait_for_end});
  child.wait_in(SYS_poll);
  kill(child.pid(), SIGSTOP);
  int status = 0;
  waitpid(child.pid(), &status, WUNTRACED);
  CHECK(refusal(child, child.tid()) == "cannot be used for the call: stopped");
  kill(child.pid(), SIGCONT);
  REQUIRE(ptrace(PTRACE_SEIZE, child.tid(), nullptr, nullptr) == 0);
  const auto called = gpu::call_in(child.id(), child.tid(), address_of(&test_callee), kLimit);
  REQUIRE(!called);
  CHECK(called.error().what ==
        "cannot be used for the call: traced by another process (pid " + std::to_string(syscall(SYS_gettid)) + ")");
  CHECK(shared->calls == 0);
  // A tracer reaps its threads; the process exists until then.
  kill(child.pid(), SIGKILL);
  waitpid(child.tid(), &status, __WALL);
}

TEST_CASE("what is refused gives way to the next") {
  Child child({&wait_for_mutex, &wait_in_coroutine, &sleep_in_condition, &wait_in_constructor},
              {.before = &hold_locks});
  child.wait_in(SYS_futex, 0);
  child.wait_in(SYS_poll, 1);
  child.wait_in(SYS_futex, 2);
  child.wait_in(SYS_poll, 3);
  const auto called = gpu::make_inferior_call(child.id(), address_of(&test_callee), kLimit);
  INFO((called ? "" : called.error().message()));
  REQUIRE(called);
  CHECK(called->tid == child.tid(2));
  CHECK(shared->calls == 1);
}

TEST_CASE("where all are refused, it is said how many and why") {
  Child child({&wait_for_mutex, &wait_for_rwlock, &wait_in_coroutine}, {.before = &hold_locks});
  child.wait_in(SYS_futex, 0);
  child.wait_in(SYS_futex, 1);
  child.wait_in(SYS_poll, 2);
  const auto called = gpu::make_inferior_call(child.id(), address_of(&test_callee), kLimit);
  REQUIRE(!called);
  CHECK(called.error().code == ErrorCode::kUnsupported);
  CHECK(called.error().message() == "pid " + std::to_string(child.pid()) +
                                        ": no thread of it can make the call that this driver needs: of 4 threads 2 "
                                        "waiting for a lock, 1 on another stack than its own, 1 the main thread");
  CHECK(called.error().hint ==
        "look again: it takes one thread, not the main thread, that waits in poll, a sleep, a read or on a condition "
        "variable; drivers since 590 need none");
  CHECK(shared->calls == 0);

  Child alone({});
  const auto none = gpu::make_inferior_call(alone.id(), address_of(&test_callee), kLimit);
  REQUIRE(!none);
  CHECK(none.error().what ==
        "no thread of it can make the call that this driver needs: of 1 threads 1 the main thread");
  CHECK(none.error().hint ==
        "the process needs a thread of its own in addition to the main thread that waits, as torch's and NCCL's do; "
        "drivers since 590 need none");
}
