#include "target/stopped_process.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/hurry.h"
#include "target/proc.h"

namespace rankstacks::target {
namespace {

using Clock = std::chrono::steady_clock;

// A running or interruptibly sleeping thread stops within microseconds. One that needs longer is in the kernel, and the
// others must not wait for it.
constexpr auto kStopTimeout = std::chrono::milliseconds(500);
constexpr auto kUninterruptibleTimeout = std::chrono::milliseconds(20);
constexpr auto kLatePause = std::chrono::milliseconds(5);
// Bounds for threads that are created while their siblings are being stopped. Real programs need two rounds, fork bombs
// a handful. Nor does stopping take longer than a second from the first seizure, whatever the process does meanwhile;
// thousands of threads need a tenth of that.
constexpr int kMaxRounds = 64;
constexpr std::chrono::seconds kLongestStopping{1};
// How long to wait for another tracer: another run of this tool needs a tenth of that.
constexpr auto kTracerTimeout = std::chrono::milliseconds(200);
constexpr int kUnexplainedRefusals = 8;

void pause_for(std::chrono::nanoseconds time) {
  const timespec pause{0, time.count()};
  nanosleep(&pause, nullptr);
}

}  // namespace

StoppedProcess::StoppedProcess(Pid pid) : pid_(pid), watcher_(std::make_unique<StopWatcher>(pid)) {}

StoppedProcess::StoppedProcess(StoppedProcess&& o) noexcept
    : pid_(o.pid_),
      threads_(std::move(o.threads_)),
      index_(std::move(o.index_)),
      waiting_(std::move(o.waiting_)),
      watcher_(std::move(o.watcher_)),
      first_errno_(o.first_errno_),
      seizing_ended_(o.seizing_ended_),
      unsettled_(o.unsettled_),
      resumed_(o.resumed_),
      hurries_(o.hurries_),
      started_(o.started_),
      started_wall_(o.started_wall_) {
  o.resumed_ = true;
}

StoppedProcess::~StoppedProcess() { resume(); }

// A thread may have ended between its listing and its seizure, and its number may have been given to a thread of
// another process. A seized thread cannot change any more: signal 0, which sends nothing, shows whose it is. EPERM also
// means that the thread exists.
bool StoppedProcess::seized_is_ours(Tid tid) const { return syscall(SYS_tgkill, pid_, tid, 0) == 0 || errno == EPERM; }

void StoppedProcess::seize(Tid tid) {
  index_.emplace(tid, threads_.size());
  Thread& thread = threads_.emplace_back();
  thread.tid = tid;
  const auto start = Clock::now();
  std::optional<Pid> tracer;
  int saved = 0;
  int unexplained = 0;
  while (true) {
    if (watcher_->seize(tid) == 0) {
      // A thread of another process is not interrupted; it runs on, and is released when the calling thread ends.
      if (seized_is_ours(tid)) waiting_.push_back(threads_.size() - 1);
      else thread.problem = kEnded;
      return;
    }
    saved = errno;
    if (saved == EINTR) {
      seizing_ended_ = true;
      thread.problem = "could not be seized: its process is executing another program (exec)";
      return;
    }
    if (saved != EPERM) break;
    tracer = proc::tracer_of(pid_, tid);
    // Another sample by this tool detaches within milliseconds. All samples begin and end with the main thread: the one
    // that holds it has the other threads to itself. If a refusal has no tracer, the tracer may have detached between
    // the refusal and this query.
    if (!tracer) ++unexplained;
    if (tid != pid_ || unexplained > kUnexplainedRefusals || Clock::now() - start > kTracerTimeout) break;
    if (tracer) pause_for(std::chrono::milliseconds(1));
  }
  // A thread that is ending, or already a zombie, is refused as well (Linux kernel/ptrace.c, ptrace_attach:
  // exit_state).
  if (saved == EPERM && !tracer) {
    const auto stat = proc::stat_of(pid_, tid);
    if (!stat || stat->ends()) saved = ESRCH;
  }
  if (first_errno_ == 0 || tid == pid_) first_errno_ = saved;
  if (saved == ESRCH) {
    thread.problem = kEnded;
    return;
  }
  thread.problem = fmt::format("cannot be seized: {}", std::strerror(saved));
  if (!tracer) return;
  const auto stat = proc::stat_of(*tracer);
  thread.problem += fmt::format("; already traced by pid {} ({})", *tracer, stat ? stat->name : "?");
}

void StoppedProcess::interrupt_seized() {
  if (started_ == Clock::time_point{} && !waiting_.empty()) {
    hurries_ = hurry();
    started_ = Clock::now();
    started_wall_ = std::chrono::system_clock::now();
  }
  // The main thread is the last one to be released: so it is the last one to be stopped.
  std::stable_partition(waiting_.begin(), waiting_.end(), [&](std::size_t i) { return threads_[i].tid != pid_; });
  std::erase_if(waiting_, [&](std::size_t i) {
    threads_[i].interrupted = Clock::now();
    if (ptrace(PTRACE_INTERRUPT, threads_[i].tid, nullptr, nullptr) == 0) return false;
    threads_[i].problem = kEnded;
    return true;
  });
}

namespace {

// What has become of a thread; info.si_pid is 0 if it is still on its way to its stop. The stop is only peeked at
// (WNOWAIT): a wait that consumes it also consumes the signal on its way to the thread, and if this tool were killed
// now, nobody would deliver that signal (Linux kernel/exit.c, wait_task_stopped() clears exit_code).
int peek_at_stop(Tid tid, siginfo_t& info) {
  return waitid(P_PID, static_cast<id_t>(tid), &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL);
}

}  // namespace

// A trap caused by the tool, or a job-control stop, reports PTRACE_EVENT_STOP above the signal; anything else is a
// signal on its way to the thread.
void StoppedProcess::note_signal(Thread& thread, const siginfo_t& info) {
  thread.is_signal_known = true;
  if (info.si_code == CLD_TRAPPED && info.si_status >> 8 == 0) thread.pending_signal = info.si_status;
}

void StoppedProcess::read_signal(Thread& thread) {
  if (!thread.stopped || thread.is_signal_known) return;
  siginfo_t info{};
  if (peek_at_stop(thread.tid, info) == 0) note_signal(thread, info);
}

void StoppedProcess::read_signals() {
  for (Thread& thread : threads_) read_signal(thread);
}

// Returns true if the thread has stopped or ended.
bool StoppedProcess::look_at(Thread& thread) {
  siginfo_t info{};
  const int failed = peek_at_stop(thread.tid, info);
  if ((failed == 0 && info.si_pid == 0) || (failed != 0 && errno == EINTR)) return false;
  if (failed != 0 || info.si_code != CLD_TRAPPED) {
    thread.problem = kEnded;
    if (failed == 0) waitpid(thread.tid, nullptr, __WALL | WNOHANG);
    return true;
  }
  note_signal(thread, info);
  return thread.stopped = true;
}

// The same from its registers, for which no other call is needed then. That a thread has ended, this does not show.
bool StoppedProcess::look_at_registers(Thread& thread) {
  read_registers(thread);
  return thread.stopped = thread.register_bytes > 0;
}

void StoppedProcess::await_stops(Needed needed) {
  const auto start = Clock::now();
  int idle = 0;
  for (bool is_first = true;; is_first = false) {
    const std::size_t before = waiting_.size();
    std::erase_if(waiting_, [&](std::size_t i) {
      const bool may_do = needed == Needed::kRegisters && look_at_registers(threads_[i]);
      return may_do || ((needed == Needed::kStop || !is_first) && look_at(threads_[i]));
    });
    if (waiting_.empty()) return;
    // Stops come within microseconds, but each thread needs a processor for that: check again at once if most have
    // stopped meanwhile, else sleep.
    idle = waiting_.size() <= before / 2 ? 0 : idle + 1;
    if (idle > 0) pause_for(std::chrono::microseconds(std::min(10 * idle, 100)));
    const auto waited = Clock::now() - start;
    if (waited <= kUninterruptibleTimeout) continue;
    std::erase_if(waiting_, [&](std::size_t i) {
      const auto stat = proc::stat_of(pid_, threads_[i].tid);
      if (stat && stat->state != 'D' && waited < kStopTimeout) return false;
      if (stat && stat->state == 't' && look_at(threads_[i])) return true;  // it has stopped since
      threads_[i].problem = kEnded;
      if (stat) {
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
        threads_[i].problem = fmt::format("did not stop within {} ms (state {})", ms, stat->state);
        threads_[i].late = stat->state;
      }
      return true;
    });
    // A thread that is so late waits for a processor, and this thread, in the real-time class, would keep one from it:
    // check rarely.
    if (!waiting_.empty()) pause_for(kLatePause);
  }
}

// The link count of /proc/PID/task is the number of its threads plus two. When as many threads are stopped as exist,
// none is left that could create another.
bool StoppedProcess::all_are_stopped() const {
  std::size_t stopped = 0;
  for (const Thread& t : threads_) {
    if (t.stopped) ++stopped;
    else if (t.problem != kEnded) return false;
  }
  struct stat tasks {};
  return ::stat(fmt::format("/proc/{}/task", pid_).c_str(), &tasks) == 0 && tasks.st_nlink == stopped + 2;
}

Error StoppedProcess::executes_for_long() const {
  return {.code = ErrorCode::kTimeout,
          .subject = fmt::format("pid {}", pid_),
          .what = fmt::format("it is executing another program (exec), and that was not done within {} s",
                              kLongestStopping.count()),
          .hint = fmt::format("the program's file may be in a file system that does not answer: see "
                              "/proc/{}/task/*/stack; otherwise run rankstacks again",
                              pid_)};
}

// Called when a thread is seized: from then on the pid cannot get to another process.
Result<void> StoppedProcess::check_process(std::uint64_t start_ticks) const {
  const auto stat = proc::stat_of(pid_);
  if (stat && stat->start_ticks == start_ticks) return {};
  return fail({.code = ErrorCode::kGone,
               .subject = fmt::format("pid {}", pid_),
               .what = stat ? "it has ended, and its pid belongs to another process now" : "it has ended"});
}

Result<void> StoppedProcess::stop_also(std::uint64_t start_ticks, const std::vector<Tid>& tids) {
  watcher_->seizes_until(Clock::now() + kLongestStopping);
  for (const Tid tid : tids) {
    if (!index_.contains(tid)) seize(tid);
    if (seizing_ended_) return fail(executes_for_long());
  }
  watcher_->is_seized();
  if (auto same = check_process(start_ticks); !same) return same;
  interrupt_seized();
  await_stops(Needed::kStop);
  return {};
}

Result<StoppedProcess> StoppedProcess::stop(Pid pid, std::uint64_t start_ticks,
                                            const std::vector<Tid>& uninterruptible) {
  StoppedProcess p(pid);
  for (const Tid tid : uninterruptible) {
    p.index_.emplace(tid, p.threads_.size());
    p.threads_.push_back({.tid = tid, .problem = "in an uninterruptible wait (state D): not stopped"});
  }
  const auto end = Clock::now() + kLongestStopping;
  p.watcher_->seizes_until(end);
  p.unsettled_ = true;
  for (int round = 0; round < kMaxRounds && (round == 0 || Clock::now() < end); ++round) {
    const std::size_t before = p.threads_.size();
    for (const Tid tid : proc::tasks_of(pid)) {
      if (!p.index_.contains(tid)) p.seize(tid);
      if (p.seizing_ended_) return fail(p.executes_for_long());
    }
    if (p.threads_.size() == before) {
      p.unsettled_ = false;
      break;
    }
    if (round == 0) {
      if (auto same = p.check_process(start_ticks); !same) return fail(same.error());
    }
    p.interrupt_seized();
    p.await_stops(Needed::kRegisters);
    p.read_registers();
    if (p.all_are_stopped()) {
      p.unsettled_ = false;
      break;
    }
  }
  p.watcher_->is_seized();
  const bool any = std::any_of(p.threads_.begin(), p.threads_.end(), [](const Thread& t) { return t.stopped; });
  if (!any && uninterruptible.empty()) {
    // They were seized and interrupted, but none stopped: the threads get no processor, or wait in the kernel where no
    // signal reaches them. A process that keeps running is not read.
    const auto late =
        std::find_if(p.threads_.begin(), p.threads_.end(), [](const Thread& t) { return t.late.has_value(); });
    if (late != p.threads_.end()) {
      return fail(
          {.code = ErrorCode::kTimeout,
           .subject = fmt::format("pid {}", pid),
           .what = fmt::format("none of its {} threads could be stopped: tid {} {}", p.threads_.size(), late->tid,
                               late->problem),
           .hint =
               late->late == 'D'
                   ? fmt::format("it waits in the kernel, which no tracer can interrupt: see /proc/{}/task/{}/stack",
                                 pid, late->tid)
                   : "it gets no processor: see the machine's load and cpu.stat of its cgroup (throttled), then run "
                     "rankstacks again"});
    }
    const int saved = p.first_errno_ != 0 ? p.first_errno_ : ESRCH;
    return fail({.code = saved == EPERM ? ErrorCode::kPermission : ErrorCode::kGone,
                 .subject = fmt::format("pid {}", pid),
                 .what = "cannot be attached to",
                 .os_errno = saved});
  }
  return p;
}

void StoppedProcess::read_registers(Thread& thread) {
  iovec vector{&thread.registers, sizeof thread.registers};
  const bool was_read = ptrace(PTRACE_GETREGSET, thread.tid, reinterpret_cast<void*>(NT_PRSTATUS), &vector) == 0;
  thread.register_bytes = was_read ? vector.iov_len : 0;
  thread.register_errno = was_read ? 0 : errno;
}

void StoppedProcess::read_registers() {
  for (Thread& thread : threads_)
    if (thread.stopped && thread.register_bytes == 0) read_registers(thread);
}

Result<Registers> StoppedProcess::registers(Tid tid) const {
  const auto found = index_.find(tid);
  const Thread none;
  const Thread& thread = found == index_.end() ? none : threads_[found->second];
  if (thread.register_bytes == 0) {
    return fail({.code = ErrorCode::kGone,
                 .subject = fmt::format("pid {} tid {}", pid_, tid),
                 .what = "cannot read the registers",
                 .os_errno = thread.register_errno});
  }
  if (thread.register_bytes != sizeof thread.registers) {
    return fail({.code = ErrorCode::kUnsupported,
                 .subject = fmt::format("pid {} tid {}", pid_, tid),
                 .what = fmt::format("expected {} bytes of x86-64 registers, found {}: a 32-bit thread",
                                     sizeof thread.registers, thread.register_bytes)});
  }
  return Registers::from_user_regs(thread.registers);
}

std::optional<RawThread> StoppedProcess::raw(Tid tid) const {
  const auto found = index_.find(tid);
  if (found == index_.end() || threads_[found->second].register_bytes != sizeof(user_regs_struct)) return std::nullopt;
  RawThread thread{.tid = tid, .registers = threads_[found->second].registers};
  std::array<std::byte, 16u << 10> state;  // with AMX's tiles it has 11 KB
  iovec extended{state.data(), state.size()};
  if (ptrace(PTRACE_GETREGSET, tid, reinterpret_cast<void*>(NT_X86_XSTATE), &extended) == 0)
    thread.extended.assign(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(extended.iov_len));
  return thread;
}

double StoppedProcess::resume() {
  if (resumed_) return 0;
  resumed_ = true;
  Clock::duration longest{};
  const auto release = [&](Thread& thread) {
    if (!thread.stopped) return;
    read_signal(thread);
    ptrace(PTRACE_DETACH, thread.tid, nullptr, static_cast<long>(thread.pending_signal));
    thread.stopped = false;
    longest = std::max(longest, Clock::now() - thread.interrupted);
  };
  // Another tool waits for the main thread: who has that has the others to itself.
  Thread* main = nullptr;
  for (Thread& thread : threads_) {
    if (thread.tid == pid_) main = &thread;
    else release(thread);
  }
  if (main != nullptr) release(*main);
  watcher_.reset();
  if (hurries_) hurry_no_more();
  return std::chrono::duration<double, std::milli>(longest).count();
}

}  // namespace rankstacks::target
