// All threads of a process, stopped by ptrace: a resource whose destructor lets every one of them go on.
//
// PTRACE_SEIZE and PTRACE_INTERRUPT: no signal is sent, a job-control stop stays one, and a signal that arrives meanwhile is handed on at the
// detach. If the tool dies, the kernel detaches for it. ptrace belongs to the calling thread: create, use and destroy on one thread.
//
// A thread in an uninterruptible wait (state D) does not stop; the wait for it is bounded, and it is let go when the thread of the tool that
// seized it ends. So: one short-lived thread of the tool per capture.
//
// All of it is bounded: threads that are born while others are stopped are followed for kLongestStopping, and a second thread ends the one call that
// may wait for ever, PTRACE_SEIZE of a process that executes a program (stop_watcher.h).
//
// What keeps the stop short: everything is seized before the first thread is interrupted; each thread is waited for by its own id (waiting for
// "any" walks the list of all tracees in the kernel, which is quadratic: 40 of 80 ms at 2,000 threads); whether a thread was born meanwhile
// is told by the link count of /proc/PID/task, one system call instead of a listing; and from the first interrupt to the last detach the
// calling thread is of the real-time class where that is permitted, as on a busy machine the process would stand still for as long as the tool
// waits for a processor.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "target/registers.h"
#include "target/stop_watcher.h"

namespace rankstacks {

class StoppedProcess {
 public:
  struct Thread {
    Tid tid = 0;
    bool stopped = false;
    int pending_signal = 0;   // to be delivered at the detach
    std::string problem;      // why it is not stopped
    std::optional<char> late; // seized and interrupted, and not stopped when the timeout was over: its state in /proc then
  };

  // Stops every thread, those that appear meanwhile included. `start_ticks`: when the process that is meant was started (proc::Stat); a pid
  // that belongs to another one by now is an error, before anything is stopped. `uninterruptible`: threads known to be in state D, not
  // seized at all. Errors: another process (kGone); not a single thread could be seized (kPermission, kGone) with the errno of the main thread;
  // not a single one came to its stop in time (kTimeout): they get no processor, or wait in state D; the process executes a program for as long
  // (kTimeout).
  static Result<StoppedProcess> stop(Pid pid, std::uint64_t start_ticks, const std::vector<Tid>& uninterruptible);

  ~StoppedProcess();                                   // resume()
  StoppedProcess(StoppedProcess&&) noexcept;
  StoppedProcess& operator=(StoppedProcess&&) = delete;

  const std::vector<Thread>& threads() const { return threads_; }

  // Threads were born faster than they could be stopped: there may be some that run on and are not among threads().
  bool is_unsettled() const { return unsettled_; }

  Result<Registers> registers(Tid tid) const;

  // Detaches all, and gives the calling thread its scheduling class back; the time from the first interrupt to the last detach, in milliseconds.
  double resume();

  std::chrono::steady_clock::time_point stopped_at() const { return started_; }
  std::chrono::system_clock::time_point stopped_at_wall() const { return started_wall_; }

 private:
  explicit StoppedProcess(Pid pid);
  void seize(Tid tid);
  bool seized_is_ours(Tid tid) const;
  void interrupt_seized();
  void await_stops();
  static bool look_at(Thread& thread);
  bool all_stand_still() const;

  Pid pid_;
  std::vector<Thread> threads_;
  std::unordered_map<Tid, std::size_t> index_;
  std::vector<std::size_t> waiting_;                   // seized, then interrupted, and not yet seen to stop
  std::unique_ptr<StopWatcher> watcher_;
  int first_errno_ = 0;
  bool seizing_ended_ = false;                         // by the watcher
  bool unsettled_ = false;
  bool resumed_ = false;
  bool hurries_ = false;                               // of the real-time class meanwhile
  std::chrono::steady_clock::time_point started_{};
  std::chrono::system_clock::time_point started_wall_{};
};

}  // namespace rankstacks
