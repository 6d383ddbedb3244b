// ptrace calls of one thread that another thread can end.
//
// PTRACE_SEIZE waits for an exec of its target process (for cred_guard_mutex, Linux kernel/ptrace.c), and an exec can
// take forever: the program's file may be on a file system that does not answer. A signal ends the kernel's wait, but
// the kernel restarts the call once the signal is handled (ERESTARTNOINTR), so the handler leaves the call by a jump.
// The effect of a call that was ended is unknown; if it did seize a thread, the kernel releases that thread when the
// calling thread ends.
#pragma once

#include <sys/types.h>
#include <atomic>

namespace rankstacks::target {

class EndableCalls {
 public:
  EndableCalls();  // for calls of the calling thread

  // Like ptrace(2). EINTR: the call was ended.
  long ptrace(long request, pid_t tid, void* address, void* data);

  // Calls are made again, even if they were ended before.
  void begin() { ended_ = false; }

  // Called by another thread: ends the call in progress and every following one until begin(). It may miss a call that
  // is just about to begin, so it has to be repeated until the thread has returned.
  void end();
  bool ended() const { return ended_; }

 private:
  pid_t process_, thread_;
  std::atomic<bool> ended_{false};
};

}  // namespace rankstacks::target
