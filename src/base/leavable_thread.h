// A thread of the tool for work that may never return: system calls on memory or files that another process has chosen.
// The kernel may block such a call forever, on memory of a file system that does not answer or of a userfaultfd that
// nobody serves.
//
// The code that waits for the thread can abandon it, but only while the thread is inside blocking(). There it uses only
// objects of its own, and once abandoned it never leaves blocking(). Everything else that the work was using therefore
// stays as it was, and others can use it from then on.
//
// The work runs in a sibling process (sibling_process.h), so that the tool can exit while the kernel still holds it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace rankstacks {
inline namespace base {

class LeavableThread {
 public:
  using Clock = std::chrono::steady_clock;

  // The new thread runs `first` and then waits for work.
  explicit LeavableThread(std::function<void()> first = {});
  ~LeavableThread();  // waits for the end of the work, unless the thread was abandoned
  LeavableThread(const LeavableThread&) = delete;
  LeavableThread& operator=(const LeavableThread&) = delete;

  // May be called once. The work must not throw.
  void start(std::function<void()> work);

  // Returns whether the work is done.
  bool wait_until(Clock::time_point end);

  // Abandons the thread if its work is inside blocking(), and returns whether it was. If so, the tool must exit by
  // end_at_once() (unattended.h).
  bool leave_behind();

  // Called by the work: runs `call`, which may never return. `call` must touch only objects that are never freed and
  // that nobody else uses, such as locals of the work.
  template <class Call>
  void blocking(Call&& call) {
    const std::shared_ptr<State> state = state_;  // `this` may be destroyed by the time the call returns
    enter(*state);
    call();
    leave(*state);
  }

 private:
  enum class Phase { kIdle, kWorking, kDone };
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> work;
    Phase phase = Phase::kIdle;
    bool ends = false;
    bool inside = false;
    bool left = false;
  };
  static void run(State& state);
  static void enter(State& state);
  static void leave(State& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace base
}  // namespace rankstacks
