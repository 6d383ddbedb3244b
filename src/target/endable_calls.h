// ptrace calls of one thread that another thread can end.
//
// PTRACE_SEIZE waits for the exec of the process that it is about (for its cred_guard_mutex, Linux kernel/ptrace.c), and an exec can take for ever: the
// program's file may lie in a file system that does not answer. The kernel's wait ends for a signal, and it begins the call anew once the signal is
// handled (ERESTARTNOINTR); so the handler leaves the call by a jump. What a call that was ended has brought about nobody knows: whatever it may
// have seized is let go when the thread that made it ends.
#pragma once

#include <atomic>
#include <sys/types.h>

namespace rankstacks {

class EndableCalls {
 public:
  EndableCalls();   // of the calling thread

  // As ptrace(2). EINTR: it was ended.
  long ptrace(long request, pid_t tid, void* address, void* data);

  // By another thread: ends the call that is under way, and every one that follows. A call that is just about to begin may be missed: to be
  // called again and again until the thread has come back.
  void end();
  bool ended() const { return ended_; }

 private:
  pid_t process_, thread_;
  std::atomic<bool> ended_{false};
};

}  // namespace rankstacks
