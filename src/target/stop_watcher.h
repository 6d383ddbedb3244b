// A second thread beside each stop of a process. It does the two things that the thread which stops the process cannot do while it waits in the kernel:
//
// - It reaps what ended. A thread that is traced and ends stays a zombie until the tool has waited for it, and an exec of its process waits, with
//   cred_guard_mutex in its hands, until all other threads are gone (Linux fs/exec.c, de_thread). PTRACE_SEIZE waits for that mutex: without this the tool
//   and its target wait for each other for ever. Any thread of the tool may reap its tracees.
// - It ends a PTRACE_SEIZE that takes too long (endable_calls.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/types.h"
#include "target/endable_calls.h"

namespace rankstacks {

class StopWatcher {
 public:
  using Clock = std::chrono::steady_clock;

  // Made by the thread that stops the process. Its calls are ended once `end` has passed.
  StopWatcher(Pid pid, Clock::time_point end);
  ~StopWatcher();
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;

  // PTRACE_SEIZE; what it seizes is watched. EINTR: it took too long.
  long seize(Tid tid);

  // Nothing more is seized: from now on calls are not ended.
  void is_seized();

 private:
  void watch();

  EndableCalls calls_;
  Clock::time_point end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Tid> seized_;
  bool seizes_ = true, quits_ = false;
  std::thread thread_;
};

}  // namespace rankstacks
