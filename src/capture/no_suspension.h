// Delays Ctrl-Z while this object exists: a suspended tool would leave the processes that it has stopped paused until
// it is resumed.
//
// SIGTSTP is blocked in the calling thread and in threads that it starts meanwhile; it takes effect when this object is
// destroyed. SIGSTOP cannot be delayed.
#pragma once

#include <pthread.h>
#include <csignal>

namespace rankstacks::capture {

class NoSuspension {
 public:
  NoSuspension() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~NoSuspension() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSuspension(const NoSuspension&) = delete;
  NoSuspension& operator=(const NoSuspension&) = delete;

 private:
  sigset_t before_;
};

}  // namespace rankstacks::capture
