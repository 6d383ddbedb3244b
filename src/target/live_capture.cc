// The part of LiveTarget that stops a process, reads it and lets it go.
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/hurry.h"
#include "target/live_target.h"
#include "target/mapping_list.h"
#include "target/ready_memory.h"
#include "target/stopped_process.h"

namespace rankstacks::target {
namespace {

constexpr int kUninterruptibleTries = 5;  // one millisecond apart
constexpr int kReleaseTries = 10'000;     // a tenth of that

// How long a reader may take to notice that it has to stop reading: the kernel copies 4 MiB within milliseconds.
constexpr std::chrono::milliseconds kReturnTimeout{250};

// Runs this on a thread of its own. A thread that was seized and did not stop in time cannot be detached from: the
// kernel releases it at the end of the thread of the tool that has seized it, which is after it can be joined.
void run_and_release(const std::function<void()>& work) {
  pid_t tid = 0;
  std::thread([&] {
    tid = static_cast<pid_t>(syscall(SYS_gettid));
    work();
  }).join();
  const timespec pause{0, 100'000};
  for (int tries = 0; tries < kReleaseTries && syscall(SYS_tgkill, getpid(), tid, 0) == 0; ++tries)
    nanosleep(&pause, nullptr);
}

}  // namespace

// Adds the kernel's place of a thread in state D. Before Linux 5.7 these reads wait for an exec of the process.
void LiveTarget::add_kernel_place(ThreadInfo& thread, LeavableThread& reader) {
  const std::string dir = fmt::format("/proc/{}/task/{}/", pid_, thread.tid);
  Result<std::string> wchan, stack;
  // Uses only variables of this function: it may return when the target is gone.
  reader.blocking([&] {
    wchan = proc::read_file(dir + "wchan");
    stack = proc::read_file(dir + "stack");
  });
  thread.wchan = wchan.value_or("");
  thread.kernel_stack.clear();
  if (stack) {
    std::string_view rest = *stack;
    while (!rest.empty()) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (const auto space = line.find("] "); space != std::string_view::npos) line.remove_prefix(space + 2);
      if (!line.empty()) thread.kernel_stack.emplace_back(line);
    }
  }
}

// For a thread that cannot be stopped.
void LiveTarget::add_uninterruptible(ThreadInfo& thread, LeavableThread& reader) {
  add_kernel_place(thread, reader);
  std::optional<Registers> registers;
  reader.blocking([&, pid = pid_, tid = thread.tid] { registers = proc::standing_registers(pid, tid); });
  thread.registers = registers;
}

// The threads that were stopped, with their registers.
void LiveTarget::add_threads(const StoppedProcess& stopped) {
  raw_threads_.clear();
  if (keeps_raw_threads_) raw_threads_.reserve(stopped.threads().size());
  std::unordered_map<Tid, std::size_t> index;
  for (std::size_t i = 0; i < threads_.size(); ++i) index.emplace(threads_[i].tid, i);
  std::unordered_set<Tid> met;
  for (const auto& s : stopped.threads()) {
    met.insert(s.tid);
    auto it = index.find(s.tid);
    if (it == index.end()) {
      const auto born = proc::stat_of(pid_, s.tid);
      it = index.emplace(s.tid, threads_.size()).first;
      threads_.push_back({.tid = s.tid,
                          .name = born ? born->name : "",
                          .state = 'R',
                          .cpu_ms = born ? std::optional(born->cpu_ms) : std::nullopt});
    }
    ThreadInfo& thread = threads_[it->second];
    if (!s.stopped) {
      const bool has_ended = thread.state == 'Z' || thread.state == 'X';
      thread.problem = has_ended           ? "it has ended; the process continues in its other threads"
                       : !can_stop_group() ? "its control group is frozen: not stopped"
                                           : s.problem;
      continue;
    }
    stops_.threads.insert(s.tid);
    if (auto raw = keeps_raw_threads_ ? stopped.raw(s.tid) : std::nullopt) {
      thread.registers = Registers::from_user_regs(raw->registers);
      raw_threads_.push_back(std::move(*raw));
      continue;
    }
    if (auto registers = stopped.registers(s.tid)) thread.registers = *registers;
    else thread.problem = registers.error().what;
  }
  // Removes threads that ended meanwhile, or that were listed and are gone. Of ended threads, only the main thread
  // remains part of the process. This is done before anything of the threads is read, which is stored in their order.
  std::erase_if(threads_, [&](const ThreadInfo& t) {
    return t.problem == StoppedProcess::kEnded || !met.contains(t.tid) ||
           (t.tid != pid_ && (t.state == 'Z' || t.state == 'X'));
  });
}

LiveTarget::Threads LiveTarget::all_threads() const {
  Threads all;
  all.reserve(threads_.size());
  for (const ThreadInfo& thread : threads_) all.push_back(&thread);
  return all;
}

bool LiveTarget::mappings_fit(const Threads& of) const {
  return std::all_of(of.begin(), of.end(), [&](const ThreadInfo* t) {
    return !t->registers || (mapping_of(t->registers->sp()) != nullptr && mapping_of(t->registers->pc()) != nullptr);
  });
}

// Runs on the reader's thread. Calls that may wait for another process are made inside blocking(), into local
// variables.
void LiveTarget::read_stopped_process(LeavableThread& reader) {
  for (ThreadInfo& t : threads_)
    if (!t.registers && !t.problem.empty() && t.state != 'Z' && t.state != 'X') add_uninterruptible(t, reader);
  test_reading(reader);
  read_stacks(reader, all_threads());
}

// What unwinding needs of the process, on the reader's thread.
void LiveTarget::read_stacks(LeavableThread& reader, const Threads& of) {
  // A library was loaded or a thread's stack mapped since prepare(). A wild pc or sp causes this once more, to no
  // effect. Files are opened when the process runs again; until then everything is read from memory.
  unread_maps_.reset();
  if (!mappings_fit(of)) {
    Result<std::vector<Mapping>> mappings;
    reader.blocking([&] { mappings = mappings_in(task_dir()); });
    if (mappings) {
      process_.mappings = std::move(*mappings);
      process_.modules_fit = false;
    } else {
      unread_maps_ = Problem{
          fmt::format("its memory map cannot be read once more, and stacks that it was changed for are missing: {}",
                      mappings.error().message()),
          std::nullopt};
    }
  }
  copy_stacks(of);
}

// A process can be seized and still be unreadable: a system call filter may refuse just one of the calls.
void LiveTarget::test_reading(LeavableThread& reader) {
  if (const auto any = std::find_if(process_.mappings.begin(), process_.mappings.end(),
                                    [](const Mapping& m) { return m.readable && m.inode != 0; });
      any != process_.mappings.end()) {
    char byte = 0;
    iovec local{&byte, 1}, remote{reinterpret_cast<void*>(any->range.start), 1};
    int refused = 0;
    reader.blocking([&] {
      if (process_vm_readv(process_.memory_tid, &local, 1, &remote, 1, 0) < 0) refused = errno;
    });
    if (refused == EPERM || refused == ENOSYS) {
      unreadable_ = Problem{
          fmt::format("its memory cannot be read, so there are no callers and no Python: process_vm_readv: {}",
                      std::strerror(refused)),
          fmt::format("a system call filter may refuse it: `rankstacks doctor --pids {}` shows whether it does", pid_)};
    }
  }
}

void LiveTarget::report_cuts(const Reading& reading, bool is_whole) {
  constexpr double kMiB = 1u << 20;
  const double seconds = std::chrono::duration<double>(reading.taken).count();
  const char* const ended = reading.holds ? "it was resumed" : "reading it was given up";
  const bool is_copied = reading.in_time || reading.is_copied;
  if (does_not_answer_) {
    cuts_.push_back({fmt::format("its memory does not answer: {} after {:.1f} s in the middle of a read, and what had "
                                 "not been read by then is missing",
                                 ended, seconds),
                     fmt::format("part of it may be a file of a file system that does not answer, see /proc/{}/maps, "
                                 "or a userfaultfd that nobody serves",
                                 pid_)});
  } else if (!is_whole) {
    cuts_.push_back(
        {fmt::format("{} after {:.1f} s: what had not been read by then is missing", ended, seconds), std::nullopt});
  }
  if (const std::size_t left_out = memory_.stack_bytes_left_out(); left_out > 0 && is_copied) {
    cuts_.push_back({fmt::format("the limit of memory to copy from one process is reached: {:.0f} MiB of its stacks, "
                                 "the outermost parts, are left out",
                                 std::ceil(static_cast<double>(left_out) / kMiB)),
                     "if the machine has more memory, allow more with --memory"});
  } else if (memory_.is_cut() && is_copied) {
    cuts_.push_back(
        {"the limit of memory to copy from one process is reached: part of what its stacks and its Python refer to is "
         "left out",
         "if the machine has more memory, allow more with --memory"});
  }
}

std::size_t LiveTarget::threads_stopped() const {
  return static_cast<std::size_t>(std::count_if(threads_.begin(), threads_.end(),
                                                [&](const ThreadInfo& t) { return stops_.threads.contains(t.tid); }));
}

// A pid is reused: the start time shows whether this is still the process that was prepared. It may run another program
// since.
Result<proc::Stat> LiveTarget::prepared_process_now() {
  const auto stat = proc::stat_of(pid_, process_.memory_tid);
  const auto leader = process_.memory_tid == pid_ ? stat : proc::stat_of(pid_);
  if (!stat || !leader || leader->start_ticks != process_.start_ticks)
    return fail({.code = ErrorCode::kGone, .subject = subject_, .what = "it ended before it could be stopped"});
  if (!stat->same_program(process_.program)) {
    process_.program = *stat;
    if (auto again = read_mappings(); !again) return fail(again.error());
    process_.modules_fit = false;
  }
  return *stat;
}

// The threads that have ended, those in a wait that cannot be interrupted, and those of a group that is frozen so.
std::vector<Tid> LiveTarget::threads_that_cannot_stop() {
  std::vector<Tid> cannot_stop;
  for (ThreadInfo& t : threads_) {
    // A thread is also in state D for the short time of a page fault: only one that stays in it cannot be stopped.
    for (int tries = 0; t.state == 'D' && can_stop_group() && tries < kUninterruptibleTries; ++tries) {
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
      const auto now = proc::stat_of(pid_, t.tid);
      t.state = now ? now->state : 'X';
    }
    if (!can_stop(t) || t.state == 'Z' || t.state == 'X') cannot_stop.push_back(t.tid);
  }
  return cannot_stop;
}

// Walks the copy again: the reader was abandoned, or had no time to walk all of it. A page of a mapped file may have
// blocked that reader, and this walk may touch the same page, so it runs on a thread that can be abandoned as well.
// Whether it has come to its end, and the copy had all that it wanted.
bool LiveTarget::run_on_copy(const Reading& reading) {
  bool has_ended = false;
  LeavableThread reader;
  memory_.open(0, &reader);
  if (reading.is_copied) memory_.hold();
  walks_until_ = Deadline::after(reading.longest);
  reader.start([&] {
    reading.walk();
    has_ended = !walks_until_.passed();
  });
  bool is_left = false;
  reader.wait_until(std::chrono::steady_clock::now() + reading.longest);
  while (!is_left && !reader.wait_until(std::chrono::steady_clock::now() + kReturnTimeout))
    is_left = reader.leave_behind();
  does_not_answer_ = does_not_answer_ || is_left;
  memory_.close();
  return has_ended && !memory_.has_missed();
}

Result<void> LiveTarget::capture(const std::function<void()>& walk, const CopyLimits& limits,
                                 const StopChoice& choice) {
  if (const auto now = prepared_process_now(); !now) return fail(now.error());
  read_threads();
  freeze_ = freeze_of(pid_, process_.memory_tid);
  // What cannot be stopped is read with the proof that no thread of it ran.
  StopChoice possible = choice;
  if (choice.policy == StopPolicy::kAlways && !can_stop_group()) possible.policy = StopPolicy::kAuto;
  const bool stops_all = possible.policy == StopPolicy::kAlways ||
                         // Of a thread that is not stopped, /proc does not tell all registers.
                         (keeps_raw_threads_ && possible.policy == StopPolicy::kNever);
  if (!stops_all) {
    Result<bool> captured = false;
    run_and_release([&] { captured = capture_standing(walk, limits, possible); });
    if (!captured) return fail(captured.error());
    if (*captured) {
      mark_frozen();
      return {};
    }
  }
  auto captured = capture_stopped(walk, limits);
  if (captured) mark_frozen();
  return captured;
}

// Of an attempt to do without a stop of all threads, nothing is used: it may even run another program since.
Result<void> LiveTarget::capture_stopped(const std::function<void()>& while_stopped, const CopyLimits& limits) {
  const auto before = prepared_process_now();
  if (!before) return fail(before.error());
  cuts_.clear();
  does_not_answer_ = false;
  const std::vector<Tid> cannot_stop = threads_that_cannot_stop();
  drop_copy(limits);  // drops what was read while the process ran: only reads while it is stopped are consistent
  memory_.reserve(usual_copy(threads_.size()) + more_copied_);
  // The reader is made ready before the process is stopped: it runs on a processor, in its scheduling class, and with a
  // heap that does not have to grow (copy_arena.h says why).
  std::atomic<int> is_ready{0};
  std::vector<std::byte> held;
  LeavableThread reader([&] {
    hurry();
    held = warm_heap();
    is_ready = 1;
    is_ready.notify_one();
  });
  is_ready.wait(0);
  auto stopped = StoppedProcess::stop(pid_, process_.start_ticks, cannot_stop);
  if (!stopped) {
    if (stopped.error().os_errno == 0) return fail(stopped.error());
    return fail(attach_error(pid_, stopped.error().os_errno));
  }
  // If all of its threads are in state D, none was stopped, but the process is captured all the same.
  const bool any = stopped->stopped_at_wall() != decltype(captured_at_){};
  captured_at_ = any ? stopped->stopped_at_wall() : std::chrono::system_clock::now();
  const auto started = any ? stopped->stopped_at() : std::chrono::steady_clock::now();
  add_threads(*stopped);
  method_ = ReadMethod::kStopped;

  memory_.open(process_.memory_tid, &reader);
  walks_until_ = Deadline::at(started + limits.longest);
  bool is_copied = false, is_walked = false;
  reader.start([&] {
    read_stopped_process(reader);
    is_copied = !walks_until_.passed();
    while_stopped();
    is_walked = !walks_until_.passed();
  });  // the thread keeps its raised scheduling class to its end; otherwise it might be late to report that it is done
  stopped->read_signals();
  const bool in_time = reader.wait_until(started + limits.longest);
  if (!in_time) memory_.end_fetching();
  const auto after = proc::stat_of(pid_, process_.memory_tid);
  stops_.longest_ms = std::max(stops_.longest_ms, stopped->resume());
  if (stopped->is_unsettled())
    cuts_.push_back({"its threads are created faster than they can be stopped: some kept running, and are not shown",
                     std::nullopt});
  const auto taken = std::chrono::steady_clock::now() - started;
  end_reading(reader, in_time);
  return end_capture(*before, after,
                     {.taken = taken,
                      .in_time = in_time && is_walked,
                      .holds = any,
                      .is_copied = is_copied,
                      .is_walked = is_walked,
                      .walk = while_stopped,
                      .longest = limits.longest});
}

// Afterwards only what was copied can be read, and the reader uses nothing any more. As it can read no more memory, it
// soon ends, unless the kernel does not return from a read.
void LiveTarget::end_reading(LeavableThread& reader, bool in_time) {
  while (!in_time && !does_not_answer_ && !reader.wait_until(std::chrono::steady_clock::now() + kReturnTimeout))
    does_not_answer_ = reader.leave_behind();
  if (does_not_answer_) memory_.abandon_read();
  memory_.close();
}

Result<void> LiveTarget::end_capture(const proc::Stat& before, const std::optional<proc::Stat>& after,
                                     const Reading& reading) {
  if (!after || !after->same_program(before)) {
    return fail({.code = after ? ErrorCode::kMismatch : ErrorCode::kGone,
                 .subject = subject_,
                 .what = after ? "it has executed another program (exec) while it was looked at"
                               : "it has ended while it was looked at",
                 .hint = after ? "look again" : ""});
  }
  if (!process_.modules_fit) {
    open_new_files();
    make_modules();
  }
  bool is_whole = reading.in_time || (reading.is_copied && !memory_.has_missed());
  if (does_not_answer_ || !reading.is_walked) is_whole = run_on_copy(reading) && reading.is_copied;
  report_cuts(reading, is_whole);
  if (unread_maps_) cuts_.push_back(*unread_maps_);
  return {};
}

}  // namespace rankstacks::target
