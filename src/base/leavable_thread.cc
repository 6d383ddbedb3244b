#include "base/leavable_thread.h"

#include <unistd.h>

#include "base/sibling_process.h"
#include "base/unattended.h"

namespace rankstacks {
inline namespace base {
LeavableThread::LeavableThread(std::function<void()> first)
    : state_(std::make_shared<State>()), thread_([state = state_, first = std::move(first)] {
        in_sibling_process([&] {
          if (first) first();
          run(*state);
        });
      }) {}

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
  if (state_->inside) {
    state_->left = true;
    note_given_up();
  }
  return state_->left;
}

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
  while (true) pause();  // abandoned: others own by now what it was working on
}

}  // namespace base
}  // namespace rankstacks
