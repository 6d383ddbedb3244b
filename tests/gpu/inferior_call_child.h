// A child process whose threads wait in the ways that tests ask for, and the function that is called in one of them.
#pragma once

#include <sys/types.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/types.h"
#include "target/process_id.h"

// The wait of every thread here that should be found in poll. The test program exports it; waiting_library.c calls
// it.
extern "C" __attribute__((visibility("default"))) void test_wait_for_end();

// The function that is called in the child: it uses everything that a function may change, and more.
extern "C" void test_callee();

namespace rankstacks::testing {

// The child is a copy of the test. Under AddressSanitizer its threads wait inside of that library, which plays the
// role of an allocator, and no thread of it can make the call. If this returns true, the test should be skipped; the
// message has been printed.
bool is_under_sanitizer();

// Memory shared with the child.
struct Shared {
  std::atomic<int> calls, wrong, stop, ready, handled, in_call, handled_in_call, go, interrupted, handler_kept;
  std::atomic<pid_t> tids[4];
  std::atomic<std::uint64_t> rounds;
};
extern Shared* shared;  // of the Child that was made last

using Body = void (*)();

// A process whose main thread waits for the threads that it has started, and then ends with status 7.
class Child {
 public:
  struct Options {
    std::size_t stack = 0;                            // 0: glibc's own
    void* (*in_memory)(std::size_t& size) = nullptr;  // else a stack that the program provides, by its lower end
    Body before = nullptr;                            // in the main thread, before the others start
  };
  explicit Child(std::vector<Body> bodies) : Child(std::move(bodies), Options()) {}
  Child(std::vector<Body> bodies, const Options& options);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Pid pid() const { return pid_; }
  target::ProcessId id() const { return target::ProcessId::of(pid_).value(); }
  Tid tid(std::size_t thread = 0) const { return shared->tids[thread]; }

  // Waits until the thread is in that system call.
  void wait_in(long call, std::size_t thread = 0) const;

  // Its exit status, after its threads were asked to end: 7 if all of them continued as if nothing had happened.
  int end();

 private:
  struct Start {
    Body body;
    std::size_t number;
  };
  static void* start(void* argument);
  [[noreturn]] static void run(const std::vector<Body>& bodies, const Options& options);

  pid_t pid_ = 0;
  int pipe_[2] = {-1, -1};
  std::size_t threads_ = 0;
};

inline Address address_of(void (*function)()) { return reinterpret_cast<Address>(function); }
inline constexpr std::chrono::milliseconds kLimit{5000};

}  // namespace rankstacks::testing
