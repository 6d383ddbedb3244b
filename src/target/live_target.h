// A running process as a Target: prepared from /proc, then copied while it does not run. All later work uses the copy.
//
//     prepare()    /proc only: mappings, modules (each file opened once for all processes). The process runs.
//     capture()    copy registers and the used part of every stack, run `walk`, while no thread of the process runs:
//                  because none did (still_threads.h), or because those that would are stopped; within limits of bytes
//                  and time.
//     read()       before and during capture: the process itself; after: the copy and the files, nothing else.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/deadline.h"
#include "base/leavable_thread.h"
#include "base/result.h"
#include "elf/image.h"
#include "model/snapshot.h"
#include "target/copied_memory.h"
#include "target/freezer.h"
#include "target/live_images.h"
#include "target/module_list.h"
#include "target/proc.h"
#include "target/raw_thread.h"
#include "target/still_threads.h"
#include "target/stop_choice.h"
#include "target/target.h"

namespace rankstacks::target {

class StoppedProcess;

class LiveTarget final : public Target {
 public:
  // Errors state what prevents the inspection of the process (it is gone, a zombie, a kernel thread, another user's,
  // traced by another process), with a hint.
  static Result<std::unique_ptr<LiveTarget>> prepare(Pid pid, const LiveImages& images);

  // prepare() in three steps, for callers that do not want to wait for files: the process itself; those of its files
  // that have not been opened yet, for LiveImages::open(); its modules, from the files that were opened meanwhile.
  static Result<std::unique_ptr<LiveTarget>> look_at(Pid pid, const LiveImages& images);
  std::vector<const FileMappings*> unopened_files() const;  // valid until the mappings are read once more
  FileToOpen to_open(const FileMappings& file) const;
  void add_modules();
  std::size_t copied_bytes() const { return memory_.bytes(); }
  void add_problem(Problem problem) { process_.problems.push_back(std::move(problem)); }

  // `walk` is called while the process is paused, with read() available: keep it short. It runs on another thread of
  // the tool than the one that traces the process, as a read may never return. In that case the process is resumed all
  // the same, the reading thread is abandoned in the middle of its read, and `walk` runs again, from its beginning, on
  // what was copied. It also runs again if a thread ran meanwhile: what counts is its last run. Call capture() on a
  // thread of its own that ends right after (stopped_process.h says why).
  //
  // With StopPolicy::kAuto and kNever what was read is of one moment, except for threads with a problem.
  Result<void> capture(const std::function<void()>& walk, const CopyLimits& limits = {}, const StopChoice& choice = {});

  // Has capture() keep what a core says of each thread: 2 us and 3 KB for each. All threads are stopped for that,
  // whatever the StopChoice; with StopPolicy::kAuto only when it is known what has to be copied. Whole pages are kept.
  // `more`: bytes that `walk` will read in addition to what a report needs.
  void keep_raw_threads(std::size_t more) {
    keeps_raw_threads_ = true;
    more_copied_ = more;
    memory_.keep_whole_pages();
  }
  // For `walk`: what is read between the two calls does not change with what the threads do, as the list of libraries.
  // It is read once, before threads are held, and not again while they are.
  void begin_lasting() const { memory_.read_for_once(true); }
  void end_lasting() const { memory_.read_for_once(false); }
  const std::vector<RawThread>& raw_threads() const { return raw_threads_; }

  // For `walk`: until when it may read, the process or what was copied of it.
  Deadline walks_until() const { return walks_until_; }

  // Whether a reader of the capture was abandoned: it, and what was copied until then, are never freed. Do not capture
  // this target again.
  bool does_not_answer() const { return does_not_answer_; }

  // Set if its control group is, or is being, frozen. Its threads that are frozen have the state 'F'.
  const std::optional<Freeze>& freeze() const { return freeze_; }
  // Whether ptrace can stop the thread: not one in state D, nor one that is frozen in the way of version 1.
  bool can_stop(const ThreadInfo& thread) const { return thread.state != 'D' && can_stop_group(); }

  // What the limits of the capture cut off; if there is any, the rank is partial.
  const std::vector<Problem>& cuts() const { return cuts_; }

  // Another target of the process, of the state before capture(), for a reading that may fail: this one keeps what it
  // has read. It continues the count of stops.
  std::unique_ptr<LiveTarget> again() const;
  bool is_same_program(const LiveTarget& other) const { return process_.program.same_program(other.process_.program); }

  const std::string& subject() const override { return subject_; }
  std::span<const ThreadInfo> threads() const override { return threads_; }
  std::span<const Mapping> mappings() const override { return process_.mappings; }
  const ModuleMap& modules() const override { return process_.modules; }
  std::size_t read(Address address, std::span<std::byte> into) const noexcept override;
  void prefetch(std::span<const Range> ranges) const noexcept override;

  // Frees the copy; threads, registers and modules stay. For a target whose stacks have been unwound.
  void forget_copy() { drop_copy({}); }

  Pid pid() const { return pid_; }
  const std::string& executable() const { return process_.executable; }
  const std::vector<std::string>& command() const { return process_.command; }
  std::uint64_t start_ticks() const { return process_.start_ticks; }
  const std::vector<Problem>& problems() const { return process_.problems; }
  // Memory that may not be read, and files that do not answer.
  std::vector<Problem> damage() const override;
  // How it was captured; the longest stop of all that this took; how many of its threads were stopped in any of them.
  ReadMethod method() const { return method_; }
  double stopped_ms() const { return stops_.longest_ms; }
  std::size_t threads_stopped() const;
  std::chrono::system_clock::time_point captured_at() const { return captured_at_; }

 private:
  LiveTarget(Pid pid, LiveImages images);
  Result<void> read_mappings();
  Module make_module(const FileMappings& file);
  void open_new_files();
  void make_modules();
  void read_threads();
  void mark_frozen();
  bool can_stop_group() const { return !freeze_ || freeze_->can_be_stopped(); }
  void add_kernel_place(ThreadInfo& thread, LeavableThread& reader);
  void add_uninterruptible(ThreadInfo& thread, LeavableThread& reader);
  void add_threads(const StoppedProcess& stopped);
  // Some of threads_.
  using Threads = std::vector<const ThreadInfo*>;
  Threads all_threads() const;
  bool mappings_fit(const Threads& of) const;
  // capture(), in parts. Errors: it has ended, or is another process of the same number.
  Result<proc::Stat> prepared_process_now();
  void drop_copy(const CopyLimits& limits) { memory_.clear(limits); }
  Result<void> capture_stopped(const std::function<void()>& walk, const CopyLimits& limits);
  std::vector<Tid> threads_that_cannot_stop();
  void read_stopped_process(LeavableThread& reader);
  void test_reading(LeavableThread& reader);
  void read_stacks(LeavableThread& reader, const Threads& of);
  struct Reading {
    std::chrono::steady_clock::duration taken;  // since threads were held, or if none is, since it began
    bool in_time;                               // its walk as well
    bool holds;                                 // threads were held when it ended
    bool is_copied;                             // in time: all stacks, and what `walk` is known to need
    bool is_walked;                             // `walk` has run to its end on the threads as they are now
    const std::function<void()>& walk;
    std::chrono::steady_clock::duration longest;
  };
  void end_reading(LeavableThread& reader, bool in_time);
  Result<void> end_capture(const proc::Stat& before, const std::optional<proc::Stat>& after, const Reading& reading);
  bool run_on_copy(const Reading& reading);
  void report_cuts(const Reading& reading, bool is_whole);
  // The same without stopping all threads (live_still.cc).
  struct StillRead;
  Result<bool> capture_standing(const std::function<void()>& walk, const CopyLimits& limits, const StopChoice& choice);
  void read_still(LeavableThread& reader, StillRead& still);
  void read_threads_again(const StillRead& still);
  SeenThreads see(LeavableThread& reader, SeenThreads before, bool is_patient) const;
  void walk_compared(LeavableThread& reader, StillRead& still);
  bool read_once(LeavableThread& reader, StillRead& still, bool is_patient);
  bool read_stopped(LeavableThread& reader, StillRead& still, std::vector<Tid> wanted);
  void count_threads(LeavableThread& reader, StillRead& still);
  void compare(LeavableThread& reader, StillRead& still);
  std::vector<Tid> threads_to_stop(const StillRead& still) const;
  std::vector<Range> standing_stacks(StillRead& still, const std::vector<Tid>& wanted) const;
  void check_pointers(SeenThreads& seen);
  void place_still(LeavableThread& reader, const StillRead& still);
  Threads place_stopped(const StillRead& still);
  void note_stops(StoppedProcess& held, StillRead& still);
  void add_raw_threads(const StoppedProcess& held);
  void drop_moved(const StillRead& still);
  struct Home {
    const Mapping* mapping = nullptr;  // nullptr: unknown
    Address end = 0;
  };
  Home home_of(const ThreadInfo& thread) const;
  std::optional<Range> own_stack(const ThreadInfo& thread) const;
  std::optional<Range> foreign_stack(const ThreadInfo& thread) const;
  std::optional<Range> stack_below(const ThreadInfo& thread, const Range& foreign) const;
  void copy_stacks(const Threads& of);
  void copy_generated_code(const Threads& of);
  const Mapping* mapping_of(Address a) const;
  std::string task_dir() const;

  // What is known of the process apart from any capture: a further target of it begins with a copy.
  struct Prepared {
    // A thread whose /proc entries and memory can be read; the main thread cannot be used after it has ended.
    Tid memory_tid = 0;
    std::string executable = {};
    std::vector<std::string> command = {};
    std::uint64_t start_ticks = 0;
    proc::Stat program = {};  // at the time when its mappings were read
    std::vector<Mapping> mappings = {};
    std::vector<FileMappings> files = {};  // the mappings of code, by file
    std::vector<std::string> silent_files = {};
    ModuleMap modules = {};
    bool modules_fit = true;  // whether the modules match the mappings
    std::vector<Problem> problems = {};
  };
  // Of all captures of the process.
  struct Stops {
    double longest_ms = 0;
    std::unordered_set<Tid> threads = {};
  };

  Pid pid_;
  LiveImages images_;
  std::string subject_;
  Prepared process_;
  Stops stops_;
  bool keeps_raw_threads_ = false;
  std::size_t more_copied_ = 0;
  // Of the last capture.
  std::vector<ThreadInfo> threads_;
  std::vector<RawThread> raw_threads_;
  bool does_not_answer_ = false;
  std::vector<Problem> cuts_;
  std::optional<Problem> unreadable_;
  std::optional<Problem> unread_maps_;  // of the last reading
  std::optional<Freeze> freeze_;
  Deadline walks_until_ = Deadline::never();
  mutable CopiedMemory memory_;
  ReadMethod method_ = ReadMethod::kStopped;
  std::chrono::system_clock::time_point captured_at_{};
};

// Why this process cannot be attached to, with a hint: for a ptrace or /proc error `os_errno`.
Error attach_error(Pid pid, int os_errno);

// Why `pid` can never be a target, whatever the permissions: it is a thread of another process, or this tool itself.
// Call it before anything is tried. std::nullopt if `pid` may be a target.
std::optional<Error> not_a_target(Pid pid);

}  // namespace rankstacks::target
