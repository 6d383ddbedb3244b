// A second thread during each stop of a process. It does the two things that the thread which stops the process cannot
// do while it waits in the kernel:
//
// - It reaps threads that ended. A traced thread that ends stays a zombie until the tool has waited for it, and an exec
//   of its process waits, holding cred_guard_mutex, until all other threads are gone (Linux fs/exec.c, de_thread).
//   PTRACE_SEIZE waits for that mutex: without the reaping, the tool and its target would wait for each other forever.
//   Any thread of the tool may reap its tracees.
// - It ends a PTRACE_SEIZE that takes too long (endable_calls.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/types.h"
#include "target/endable_calls.h"

namespace rankstacks::target {

class StopWatcher {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StopWatcher(Pid pid);  // created by the thread that stops the process
  ~StopWatcher();
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;

  // From now on, until is_seized(), the calls of that thread are ended once `end` has passed.
  void seizes_until(Clock::time_point end);

  // PTRACE_SEIZE; a thread that it seizes is watched from then on. EINTR: it took too long.
  long seize(Tid tid);

  // Calls are not ended any more.
  void is_seized();

 private:
  void watch();

  EndableCalls calls_;
  Clock::time_point end_ = Clock::time_point::max();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Tid> seized_;
  bool quits_ = false;
  std::thread thread_;
};

}  // namespace rankstacks::target
