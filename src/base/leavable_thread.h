// A thread of the tool for work that may never come back: it asks the kernel for what another process has chosen, and the kernel may wait for that
// process's sake for as long as it likes (memory of a file system that does not answer, of a userfaultfd that nobody serves).
//
// Whoever waits for such a thread can leave it behind, but only while it is inside of blocking(): there it works on nothing but what is its own, and
// it never comes out again. So whatever else the work has in its hands is left as it was, and can be used by others from then on.
//
// Not even SIGKILL ends some of these waits (FUSE's, once the server has the request), and a process ends with the last of its threads: so the work runs in
// a process beside the tool, which shares its memory, descriptors and signal handlers, and uses the thread-local variables of a thread that waits for it
// meanwhile. It ends with the tool (PR_SET_PDEATHSIG), as soon as the kernel has it back.
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

  // Whether the work is inside of blocking(), and was therefore left there.
  bool leave_behind();

  // Whether any was left behind so far: it shares the tool's descriptors, so a pipe ends for its reader only where the tool closes it.
  static bool any_left_behind();

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
  struct Life;
  static int live(void* life) noexcept;
  static void live_in_process_of_its_own(Life& life);
  static void run(State& state);
  static void enter(State& state);
  static void leave(State& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace rankstacks
