// A thread of the tool for work that may never come back: it asks the kernel for what another process has chosen, and the kernel may wait for that
// process's sake for as long as it likes (memory of a file system that does not answer, of a userfaultfd that nobody serves).
//
// Whoever waits for such a thread can leave it behind, but only while it is inside of blocking(): there it works on nothing but what is its own, and
// it never comes out again. So whatever else the work has in its hands is left as it was, and can be used by others from then on.
//
// Its work is done in a sibling process (sibling_process.h), so that the tool can end while the kernel keeps it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace rankstacks {

class LeavableThread {
 public:
  using Clock = std::chrono::steady_clock;

  // Waits for its work; `first` is done by the thread before that.
  explicit LeavableThread(std::function<void()> first = {});
  ~LeavableThread();                         // waits for the work's end, unless it was left behind
  LeavableThread(const LeavableThread&) = delete;
  LeavableThread& operator=(const LeavableThread&) = delete;

  // Once. The work must not throw.
  void start(std::function<void()> work);

  // Whether the work is done.
  bool wait_until(Clock::time_point end);

  // Whether the work is inside of blocking(), and was therefore left there. The tool must end by end_at_once() then (unattended.h).
  bool leave_behind();

  // For the work: runs `call`, which may take for ever. It must touch only what is never freed and nobody else uses: the work's own locals.
  template <class Call>
  void blocking(Call&& call) {
    const std::shared_ptr<State> state = state_;   // this may be gone when the call comes back
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

}  // namespace rankstacks
