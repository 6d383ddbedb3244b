#include "gpu/inferior_call_child.h"

#include <catch2/catch.hpp>

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <new>

#include "target/proc.h"

namespace rankstacks::testing {

Shared* shared = nullptr;

bool is_under_sanitizer() {
#if defined(__SANITIZE_ADDRESS__)
  WARN(
      "skipped: under AddressSanitizer the child's threads wait inside of its library, which plays the role of an "
      "allocator");
  return true;
#else
  return false;
#endif
}

namespace {
int end_of_test = -1;  // a pipe that the test writes to when the child is to end
}  // namespace

}  // namespace rankstacks::testing

using namespace rankstacks::testing;

extern "C" __attribute__((noinline)) void test_wait_for_end() {
  pollfd waiting{end_of_test, POLLIN, 0};
  if (poll(&waiting, 1, -1) != 1) shared->wrong = shared->wrong + 1;
}

extern "C" __attribute__((noinline)) void test_callee() {
  std::uint64_t a = 1;
  for (int i = 0; i < 1000; ++i) a = a * 3 + 1;
  asm volatile(
      "vpcmpeqd %%ymm0, %%ymm0, %%ymm0\n vmovdqa %%ymm0, %%ymm7\n vmovdqa %%ymm0, %%ymm15\n xor %%r12, %%r12\n mov %0, "
      "%%rbx"
      :
      : "r"(a)
      : "rbx", "r12", "xmm0", "xmm7", "xmm15");
  usleep(200);
  shared->calls = shared->calls + 1;
}

namespace rankstacks::testing {

Child::Child(std::vector<Body> bodies, const Options& options) {
  shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  new (shared) Shared{};
  REQUIRE(pipe(pipe_) == 0);
  end_of_test = pipe_[0];
  threads_ = bodies.size();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(bodies, options);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (shared->ready < static_cast<int>(threads_) && std::chrono::steady_clock::now() < until) usleep(100);
  REQUIRE(shared->ready == static_cast<int>(threads_));
}

Child::~Child() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(pipe_[0]);
  close(pipe_[1]);
  munmap(shared, sizeof(Shared));
}

void Child::wait_in(long call, std::size_t thread) const {
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
       std::chrono::steady_clock::now() < until; usleep(200))
    if (const auto waiting = target::proc::waiting_registers(pid_, tid(thread)); waiting && waiting->orig_rax == call)
      return;
  FAIL("the thread never came to system call " << call);
}

int Child::end() {
  shared->stop = 1;
  (void)!write(pipe_[1], "e", 1);
  int status = 0;
  waitpid(pid_, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void* Child::start(void* argument) {
  const Start start = *static_cast<Start*>(argument);
  shared->tids[start.number] = static_cast<pid_t>(syscall(SYS_gettid));
  shared->ready = shared->ready + 1;
  start.body();
  return nullptr;
}

void Child::run(const std::vector<Body>& bodies, const Options& options) {
  if (options.before != nullptr) options.before();
  std::vector<pthread_t> threads(bodies.size());
  std::vector<Start> starts(bodies.size());
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (options.stack != 0) pthread_attr_setstacksize(&attributes, options.stack);
    if (options.in_memory != nullptr) {
      std::size_t size = 0;
      void* const memory = options.in_memory(size);
      pthread_attr_setstack(&attributes, memory, size);
    }
    starts[i] = {bodies[i], i};
    if (pthread_create(&threads[i], &attributes, &start, &starts[i]) != 0) _exit(3);
    while (shared->ready < static_cast<int>(i) + 1) usleep(100);
  }
  if (threads.empty()) test_wait_for_end();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  _exit(7);
}

}  // namespace rankstacks::testing
