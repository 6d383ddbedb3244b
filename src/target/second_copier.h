// A second thread of the tool that copies memory of a process whose threads are held, so that two processors do it.
// What is copied then is known beforehand, and is 80 to 3,000 pieces for 160 threads, at 1 to 3 us each.
//
// The reader and this thread each make the next call that nobody has begun: so neither waits for the other to be given
// a processor, which the tracer may be using at first.
//
// Like the reader of a capture this thread may never return from the kernel. So the calls belong to this object, and
// the reader makes them inside of LeavableThread::blocking(), with `shared()` in a variable of its own.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>
#include <array>
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
    static constexpr std::size_t kMax = 64;
    std::array<CopyCall, kMax> calls;

    // By the reader: makes that many of the calls, together with the second thread. Returns when all are done.
    void make(Tid of, std::size_t how_many);

   private:
    friend class SecondCopier;
    enum Phase : int { kStarts, kReady, kAsked, kHelps, kEnds };
    void make_next_ones() {
      for (std::size_t i = next++; i < count; i = next++) calls[i].make(tid);
    }
    void wait_while(int what) {
      while (phase == what) phase.wait(what);
    }

    Tid tid = 0;
    std::size_t count = 0;
    std::atomic<std::size_t> next{0};
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
