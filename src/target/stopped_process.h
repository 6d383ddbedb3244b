// Threads of a process, all or some of them, stopped by ptrace: a resource whose destructor resumes every one of them.
//
// It uses PTRACE_SEIZE and PTRACE_INTERRUPT: no signal is sent, a job-control stop stays one, and a signal that arrives
// meanwhile is delivered at the detach. If the tool dies, the kernel detaches. A tracee belongs to the thread that
// seized it: create, use and destroy this object on one thread.
//
// A thread in an uninterruptible wait (state D) does not stop. The wait for it is bounded, and the kernel releases it
// when the thread of the tool that seized it ends. Therefore each capture uses one short-lived thread of the tool.
//
// All of it is bounded: threads that are created while others are being stopped are followed for kLongestStopping, and
// a second thread ends the one call that may wait forever, PTRACE_SEIZE of a process that executes a program
// (stop_watcher.h).
//
// Six things keep the stop short. Everything is seized before the first thread is interrupted. That a thread has
// stopped is seen from what is needed first: from its registers, which the kernel tells of a stopped thread alone, or,
// where memory is copied first, from the signal that has stopped it, which takes half of the time. The other one is
// asked for while memory is copied (read_signals(), read_registers()). A thread that has not stopped is waited for by
// its own id: waiting for "any" walks the list of all tracees in the kernel, which is quadratic (40 of 80 ms at 2,000
// threads). The link count of /proc/PID/task shows whether a thread was created meanwhile: one system call instead of a
// listing. Who was stopped first is released first, the main thread excepted. From the first interrupt to the last
// detach the calling thread is in the real-time class if that is permitted; otherwise, on a busy machine, the process
// would stay paused for as long as the tool waits for a processor.
#pragma once

#include <sys/user.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "target/raw_thread.h"
#include "target/registers.h"
#include "target/stop_watcher.h"

namespace rankstacks::target {

class StoppedProcess {
 public:
  static constexpr const char* kEnded = "it ended";

  struct Thread {
    Tid tid = 0;
    bool stopped = false;
    int pending_signal = 0;  // to be delivered at the detach
    bool is_signal_known = false;
    std::string problem;  // why it could not be stopped; kEnded: it no longer exists
    // Set if it was seized and interrupted but did not stop within the timeout: its state in /proc at that time.
    std::optional<char> late;
    std::chrono::steady_clock::time_point interrupted{};
    // As it stopped, in the kernel's form, and how many bytes that wrote; 0: why not.
    user_regs_struct registers{};
    std::size_t register_bytes = 0;
    int register_errno = ESRCH;
  };

  // Stops every thread, including those that are created meanwhile. `start_ticks`: the start time of the process that
  // is meant (proc::Stat); if the pid belongs to another process by now, that is an error, before anything is stopped.
  // `uninterruptible`: threads known to be in state D, which are not seized at all. Errors: it is another process
  // (kGone). No thread could be seized (kPermission, kGone); the error has the errno of the main thread. No thread
  // stopped in time (kTimeout): they get no processor, or wait in state D. The process executes a program for that long
  // (kTimeout).
  static Result<StoppedProcess> stop(Pid pid, std::uint64_t start_ticks, const std::vector<Tid>& uninterruptible);

  // Nothing is stopped yet: for stop_also().
  explicit StoppedProcess(Pid pid);

  // Stops these threads, those that are stopped already excepted. threads() says what has become of each; its registers
  // are not known before read_registers(). Errors: it is another process by now (kGone), or executes a program
  // (kTimeout).
  Result<void> stop_also(std::uint64_t start_ticks, const std::vector<Tid>& tids);

  // Of the threads that are stopped and whose registers are not known.
  void read_registers();

  ~StoppedProcess();  // calls resume()
  StoppedProcess(StoppedProcess&&) noexcept;
  StoppedProcess& operator=(StoppedProcess&&) = delete;

  const std::vector<Thread>& threads() const { return threads_; }

  // Whether threads were created faster than they could be stopped: some may be running that are not among threads().
  bool is_unsettled() const { return unsettled_; }

  Result<Registers> registers(Tid tid) const;

  // All that a core says of the thread; std::nullopt if the kernel does not tell its registers.
  std::optional<RawThread> raw(Tid tid) const;

  // Asks for the signals that are to be delivered at the detach. resume() does so otherwise, of each thread just before
  // it: call it if something else takes longer, and no other thread of the tool wants the processor.
  void read_signals();

  // Detaches all, and restores the scheduling class of the calling thread. Returns the longest time for which one of
  // them was stopped, from its interrupt to its detach, in milliseconds; 0 if none was stopped.
  double resume();

  std::chrono::steady_clock::time_point stopped_at() const { return started_; }
  std::chrono::system_clock::time_point stopped_at_wall() const { return started_wall_; }

 private:
  Error executes_for_long() const;
  Result<void> check_process(std::uint64_t start_ticks) const;
  void seize(Tid tid);
  bool seized_is_ours(Tid tid) const;
  void interrupt_seized();
  // What await_stops() finds out of each thread that stops, on its way: its registers, or which signal has stopped it.
  enum class Needed { kRegisters, kStop };
  void await_stops(Needed needed);
  static bool look_at(Thread& thread);
  static bool look_at_registers(Thread& thread);
  static void note_signal(Thread& thread, const siginfo_t& info);
  static void read_signal(Thread& thread);
  static void read_registers(Thread& thread);
  bool all_are_stopped() const;

  Pid pid_;
  std::vector<Thread> threads_;
  std::unordered_map<Tid, std::size_t> index_;
  std::vector<std::size_t> waiting_;  // seized, then interrupted, and not seen to stop yet
  std::unique_ptr<StopWatcher> watcher_;
  int first_errno_ = 0;
  bool seizing_ended_ = false;  // by the watcher
  bool unsettled_ = false;
  bool resumed_ = false;
  bool hurries_ = false;  // whether the calling thread was put into the real-time class
  std::chrono::steady_clock::time_point started_{};
  std::chrono::system_clock::time_point started_wall_{};
};

}  // namespace rankstacks::target
