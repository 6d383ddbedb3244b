// A second thread of the tool that copies memory of a process whose threads are held: two processors copy half of it
// each. What is copied then is known beforehand, and is 600 to 3,000 pieces for 160 threads, at about 1 us each.
//
// Like the reader of a capture it may never return from the kernel. So a copy belongs to this object alone until it is
// done, and who waits for it does so inside of LeavableThread::blocking(), with `shared()` in a variable of its own.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>
#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/leavable_thread.h"
#include "base/types.h"

namespace rankstacks::target {

// One call of process_vm_readv().
struct CopyCall {
  std::vector<iovec> local, remote;
  ssize_t copied = 0;  // bytes; negative: nothing, as the first piece faulted

  void clear() {
    local.clear();
    remote.clear();
  }
  void make(Tid tid) { copied = process_vm_readv(tid, local.data(), local.size(), remote.data(), remote.size(), 0); }
};

class SecondCopier {
 public:
  struct Shared {
    CopyCall call;

    void begin(Tid of);  // makes `call`
    void wait() { wait_while(kAsked); }

   private:
    friend class SecondCopier;
    enum Phase : int { kStarts, kReady, kAsked, kEnds };
    void wait_while(int what) {
      while (phase == what) phase.wait(what);
    }

    Tid tid = 0;
    std::atomic<int> phase{kStarts};
  };

  // Returns when the thread is ready: a new thread may have to wait for a processor, and nothing is held yet.
  SecondCopier();
  ~SecondCopier();  // waits for the thread, unless it was abandoned
  SecondCopier(const SecondCopier&) = delete;
  SecondCopier& operator=(const SecondCopier&) = delete;

  const std::shared_ptr<Shared>& shared() const { return shared_; }
  // When the reader that waits for it was abandoned.
  void leave_behind() { thread_.leave_behind(); }

 private:
  std::shared_ptr<Shared> shared_;
  LeavableThread thread_;
};

}  // namespace rankstacks::target
