#include "base/leavable_thread.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rankstacks {
namespace {

std::atomic<bool> some_left_behind{false};

}  // namespace

struct LeavableThread::Life {
  std::shared_ptr<State> state;
  std::function<void()> first;
  pid_t tool = getpid();
  bool ended_well = false;
};

LeavableThread::LeavableThread(std::function<void()> first)
    : state_(std::make_shared<State>()), thread_([state = state_, first = std::move(first)] {
        Life life{.state = state, .first = first};
        live_in_process_of_its_own(life);
      }) {}

int LeavableThread::live(void* argument) noexcept {
  Life& life = *static_cast<Life*>(argument);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == life.tool) {   // else the tool has ended already
    if (life.first) life.first();
    run(*life.state);
  }
  life.ended_well = true;
  _exit(0);
}

// While the other process lives, this thread stands still in the kernel (CLONE_VFORK): both use one stack and one set of thread-local variables.
void LeavableThread::live_in_process_of_its_own(Life& life) {
  // This thread's own frames go on below here once the other has ended: in what is left free between the two.
  constexpr std::uintptr_t kKeptForThisThread = 64u << 10;
  auto* top = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - kKeptForThisThread) & ~std::uintptr_t{63});
  const pid_t process = clone(&live, top, CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_FS | CLONE_SIGHAND, &life);
  if (process < 0) {   // a limit of processes, or a system call filter: then by the thread itself
    if (life.first) life.first();
    run(*life.state);
    return;
  }
  int status = 0;
  const bool known = waitpid(process, &status, __WALL) == process;
  if (life.ended_well) return;
  // It ended the tool (out of memory), or crashed: so does the tool.
  if (known && WIFSIGNALED(status)) {
    std::signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
  }
  _exit(known && WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

LeavableThread::~LeavableThread() {
  bool left = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
    left = state_->left;
  }
  state_->changed.notify_all();
  if (left) thread_.detach();
  else thread_.join();
}

void LeavableThread::run(State& state) {
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.phase == Phase::kWorking || state.ends; });
  if (state.phase != Phase::kWorking) return;
  lock.unlock();
  state.work();
  lock.lock();
  state.phase = Phase::kDone;
  state.changed.notify_all();
}

void LeavableThread::start(std::function<void()> work) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->work = std::move(work);
    state_->phase = Phase::kWorking;
  }
  state_->changed.notify_all();
}

bool LeavableThread::wait_until(Clock::time_point end) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, end, [&] { return state_->phase == Phase::kDone; });
}

bool LeavableThread::leave_behind() {
  const std::lock_guard lock(state_->mutex);
  if (state_->inside) state_->left = some_left_behind = true;
  return state_->left;
}

bool LeavableThread::any_left_behind() { return some_left_behind; }

void LeavableThread::enter(State& state) {
  const std::lock_guard lock(state.mutex);
  state.inside = true;
}

void LeavableThread::leave(State& state) {
  {
    const std::lock_guard lock(state.mutex);
    state.inside = false;
    if (!state.left) return;
  }
  while (true) pause();   // left behind: what it works on belongs to others by now
}

}  // namespace rankstacks
