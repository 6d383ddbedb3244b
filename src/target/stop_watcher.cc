#include "target/stop_watcher.h"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <csignal>

#include "base/hurry.h"

namespace rankstacks::target {
namespace {

// Longer than nearly all stops take, so that this thread does nothing during those.
constexpr std::chrono::milliseconds kPause{20};

// A tracer's wait reports a stop whatever it was asked for (Linux kernel/exit.c, wait_task_stopped), and consumes it,
// together with the signal on its way to the thread. So this peeks first, and reaps only if the thread has ended: an
// ended thread does not stop any more.
void reap_if_ended(Tid tid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(tid), &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 || info.si_pid == 0)
    return;
  if (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED)
    waitid(P_PID, static_cast<id_t>(tid), &info, WEXITED | WNOHANG | __WALL);
}

}  // namespace

// The process's own number is watched from the start: a thread that executes a program gets that number.
StopWatcher::StopWatcher(Pid pid) : seized_{pid}, thread_([this] { watch(); }) {}

StopWatcher::~StopWatcher() {
  {
    const std::lock_guard lock(mutex_);
    quits_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

long StopWatcher::seize(Tid tid) {
  {
    const std::lock_guard lock(mutex_);
    seized_.push_back(tid);
  }
  return calls_.ptrace(PTRACE_SEIZE, tid, nullptr, nullptr);
}

void StopWatcher::seizes_until(Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  end_ = end;
  calls_.begin();
}

void StopWatcher::is_seized() {
  const std::lock_guard lock(mutex_);
  end_ = Clock::time_point::max();
}

void StopWatcher::watch() {
  hurry();  // otherwise, on a busy machine, the stopping thread would wait for this one while that holds the mutex
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPause, [this] { return quits_; })) {
    if (Clock::now() >= end_) calls_.end();
    // Works on a copy with the lock released: a process may have tens of thousands of threads.
    const std::vector<Tid> seized = seized_;
    lock.unlock();
    for (const Tid tid : seized) reap_if_ended(tid);
    lock.lock();
  }
}

}  // namespace rankstacks::target
