#include "target/live_target.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <set>
#include <unordered_set>

#include "base/hurry.h"
#include "base/unattended.h"
#include "target/module_list.h"
#include "target/stopped_process.h"

namespace rankstacks::target {
namespace {

// The System V ABI lets a leaf function use 128 bytes below rsp without moving it.
constexpr std::uint64_t kRedZone = 128;
// For a stack in a mapping of unknown use (heap, a coroutine's own): how far above rsp frames are searched for.
constexpr std::uint64_t kForeignStack = 256u << 10;
// The most that is copied of one stack: 8 times the usual limit of a main stack.
constexpr std::uint64_t kMaxStack = 64u << 20;

// The memory to allocate before the stop. A waiting thread has 1 to 5 KiB of frames, a Python thread 10 to 20 KiB
// including its Python frames and their code. Processes with thousands of threads are native ones.
std::size_t usual_copy(std::size_t threads) {
  constexpr std::size_t kPython = 16u << 10, kNative = 4u << 10, kMaxPython = 256, kOther = 512u << 10;
  const std::size_t python = std::min(threads, kMaxPython);
  return kOther + python * kPython + (threads - python) * kNative;
}

// The time limit for opening a file that was mapped after the process was prepared: the names in it are not worth a
// longer wait.
constexpr std::chrono::seconds kLongestOpening{2};

Range at_most(Range range, std::uint64_t bytes) { return {range.start, std::min(range.end, range.start + bytes)}; }

// Makes the heap of the calling thread grow: afterwards 1 MiB of it is free, and remains part of the heap as long as
// the returned value lives.
std::vector<std::byte> warm_heap() {
  constexpr std::size_t kPieces = 16, kPiece = 64u << 10, kLast = 64;
  std::array<std::vector<std::byte>, kPieces> pieces;
  for (auto& piece : pieces) piece.resize(kPiece);
  return std::vector<std::byte>(kLast);
}

constexpr int kUninterruptibleTries = 5;  // one millisecond apart

// How long a reader may take to notice that it has to stop reading: the kernel copies 4 MiB within milliseconds.
constexpr std::chrono::milliseconds kReturnTimeout{250};

// Whether the process runs a 32-bit program, according to the auxiliary vector: the size of a program header. The
// kernel has a copy of its own, so neither the file nor the process's memory is touched. False if it cannot be read.
bool runs_32_bit(const std::string& task_dir) {
  const auto vector = proc::read_file(task_dir + "/auxv");
  if (!vector) return false;
  std::array<std::uint32_t, 2> entry{};
  for (std::size_t at = 0; at + sizeof entry <= vector->size(); at += sizeof entry) {
    std::memcpy(&entry, vector->data() + at, sizeof entry);
    if (entry[0] == AT_PHENT && entry[1] == sizeof(Elf32_Phdr)) return true;
    if (entry[0] == AT_PHENT && entry[1] == 0) return false;  // that of a 64-bit program: the upper half of a number
  }
  return false;
}

}  // namespace

LiveTarget::LiveTarget(Pid pid, LiveImages images)
    : pid_(pid), memory_tid_(pid), images_(std::move(images)), subject_(fmt::format("pid {}", pid)) {}

std::string LiveTarget::task_dir() const { return fmt::format("/proc/{}/task/{}", pid_, memory_tid_); }

Result<std::unique_ptr<LiveTarget>> LiveTarget::prepare(Pid pid, const LiveImages& images) {
  auto target = look_at(pid, images);
  if (!target) return target;
  LiveImages opener = images;
  for (const FileToOpen& file : (*target)->unopened_files())
    if (auto problem = opener.open(file)) (*target)->add_problem(std::move(*problem));
  (*target)->add_modules();
  return target;
}

Result<std::unique_ptr<LiveTarget>> LiveTarget::look_at(Pid pid, const LiveImages& images) {
  std::unique_ptr<LiveTarget> target(new LiveTarget(pid, images));
  const auto stat = proc::stat_of(pid);
  if (!stat) return fail(attach_error(pid, ESRCH));
  if (stat->kernel_thread()) return fail(attach_error(pid, 0));
  target->start_ticks_ = stat->start_ticks;
  target->program_ = *stat;
  if (stat->state == 'Z' || stat->state == 'X') {
    // The main thread may have ended before the others (pthread_exit). The process then continues, and is inspected
    // through them.
    const auto tasks = proc::tasks_of(pid);
    const auto alive = std::find_if(tasks.begin(), tasks.end(), [&](Tid t) {
      const auto s = proc::stat_of(pid, t);
      return s && s->state != 'Z' && s->state != 'X';
    });
    if (alive == tasks.end()) return fail(attach_error(pid, 0));
    target->memory_tid_ = *alive;
    target->program_ = proc::stat_of(pid, *alive).value_or(*stat);
  }
  if (runs_32_bit(target->task_dir())) {
    return fail({.code = ErrorCode::kUnsupported,
                 .subject = target->subject_,
                 .what = "a 32-bit process",
                 .hint = "only 64-bit x86-64 processes are read; use gdb for this one"});
  }
  if (auto read = target->read_mappings(); !read) return fail(read.error());
  target->executable_ = proc::read_link(target->task_dir() + "/exe").value_or("");
  constexpr std::string_view kDeleted = " (deleted)";
  if (target->executable_.ends_with(kDeleted)) target->executable_.resize(target->executable_.size() - kDeleted.size());
  if (auto command = proc::read_file(target->task_dir() + "/cmdline")) target->command_ = proc::split_nul(*command);
  return target;
}

Result<void> LiveTarget::read_mappings() {
  const auto text = proc::read_file(task_dir() + "/maps");
  if (!text) return fail(attach_error(pid_, text.error().os_errno));
  mappings_ = proc::parse_maps(*text);
  files_ = group_mappings(mappings_);
  return {};
}

std::vector<FileToOpen> LiveTarget::unopened_files() const {
  std::vector<FileToOpen> unopened;
  std::set<std::pair<std::uint64_t, std::uint64_t>> met;
  for (const FileMappings& file : files_) {
    const Mapping& first = file.parts.front();
    if (met.emplace(first.device, first.inode).second && !images_.is_known(first.device, first.inode))
      unopened.push_back({pid_, memory_tid_, file});
  }
  return unopened;
}

// For mappings that were made after the process was prepared; called once it runs again.
void LiveTarget::open_new_files() {
  files_ = group_mappings(mappings_);
  for (const FileToOpen& file : unopened_files()) {
    const auto problem = unattended<std::optional<Problem>>(
        [images = images_, file]() mutable { return images.open(file, Deadline::after(kLongestOpening)); },
        Unattended::beyond(kLongestOpening));
    if (!problem) images_.give_up(file);
    else if (*problem) problems_.push_back(**problem);
  }
}

void LiveTarget::add_modules() {
  memory_.open(memory_tid_);
  make_modules();
}

void LiveTarget::make_modules() {
  silent_files_.clear();
  std::vector<Module> modules;
  for (const FileMappings& file : files_) modules.push_back(make_module(file));
  for (const Mapping& m : mappings_) {
    if (m.path != "[vdso]") continue;
    Module vdso{.path = m.path, .range = m.range};
    std::vector<std::byte> bytes(m.range.size());
    if (proc::read_memory(memory_tid_, m.range.start, bytes)) {
      if (auto image = elf::Image::from_bytes(std::move(bytes), "[vdso]")) {
        vdso.image = *image;
        vdso.build_id = (*image)->build_id();
        vdso.bias = load_bias(**image, {m.path, m.range, {m}}).value_or(m.range.start);
      }
    }
    modules.push_back(std::move(vdso));
  }
  modules_ = ModuleMap(std::move(modules));
  modules_fit_ = true;
}

Module LiveTarget::make_module(const FileMappings& file) {
  const Mapping& first = file.parts.front();
  Module module{.path = file.path, .range = file.range};
  const LiveImages::Opened opened = images_.find_or(first.device, first.inode, [&]() -> LiveImages::Opened {
    return fail(
        {.code = ErrorCode::kGone, .subject = file.path, .what = "it was not opened: its process ended meanwhile"});
  });
  if (!opened) {
    module.why_no_image = opened.error().message();
    if (opened.error().code == ErrorCode::kTimeout) silent_files_.push_back(file.path);
    return module;
  }
  const auto bias = load_bias(**opened, file);
  if (!bias) {
    module.why_no_image = fmt::format("{}: its program headers do not fit the way it is mapped", file.path);
    return module;
  }
  module.image = *opened;
  module.bias = *bias;
  module.build_id = (*opened)->build_id();
  return module;
}

std::vector<Problem> LiveTarget::damage() const {
  std::vector<Problem> problems;
  if (unreadable_) problems.push_back(*unreadable_);
  if (!silent_files_.empty()) {
    const std::string others =
        silent_files_.size() == 1 ? "" : fmt::format(" and {} more of its files", silent_files_.size() - 1);
    problems.push_back(
        {fmt::format("{}{} did not answer in time: functions in there have no names, and callers may be missing",
                     silent_files_.front(), others),
         "the server of that file system (NFS, FUSE) is gone or slow: `stat` on the file waits as well; give it more "
         "time with --timeout",
         ProblemCode::kTimeout});
  }
  return problems;
}

void LiveTarget::read_threads() {
  threads_.clear();
  for (const Tid tid : proc::tasks_of(pid_)) {
    const auto stat = proc::stat_of(pid_, tid);
    if (!stat) continue;
    threads_.push_back({.tid = tid, .name = stat->name, .state = stat->state, .cpu_ms = stat->cpu_ms});
  }
}

// Adds what the kernel reports about a thread that cannot be stopped. Before Linux 5.7 these reads wait for an exec of
// the process.
void LiveTarget::add_uninterruptible(ThreadInfo& thread, LeavableThread& reader) {
  const std::string dir = fmt::format("/proc/{}/task/{}/", pid_, thread.tid);
  const Pid pid = pid_;
  const Tid tid = thread.tid;
  Result<std::string> wchan, stack;
  std::optional<Registers> registers;
  // Uses only variables of this function: it may return when the target is gone.
  reader.blocking([&] {
    wchan = proc::read_file(dir + "wchan");
    stack = proc::read_file(dir + "stack");
    registers = proc::waiting_registers(pid, tid);
  });
  thread.wchan = wchan.value_or("");
  thread.registers = registers;
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

const Mapping* LiveTarget::mapping_of(Address a) const {
  auto it = std::upper_bound(mappings_.begin(), mappings_.end(), a,
                             [](Address x, const Mapping& m) { return x < m.range.start; });
  if (it == mappings_.begin()) return nullptr;
  --it;
  return it->range.contains(a) ? &*it : nullptr;
}

// The mapping of a thread's own stack, and where its first frame begins.
LiveTarget::Home LiveTarget::home_of(const ThreadInfo& thread) const {
  const Mapping* home = nullptr;
  if (thread.tid == pid_) {
    const auto it =
        std::find_if(mappings_.begin(), mappings_.end(), [](const Mapping& m) { return m.path == "[stack]"; });
    if (it != mappings_.end()) home = &*it;
  } else if (thread.registers->fs_base != 0) {
    home = mapping_of(thread.registers->fs_base);
  }
  if (home == nullptr) return {};
  // glibc keeps the static TLS and struct pthread at the top of a thread's stack, above its first frame; fs_base is
  // between the two.
  return {home, home->range.contains(thread.registers->fs_base) ? thread.registers->fs_base : home->range.end};
}

// The range from below rsp to the first frame; std::nullopt if the thread is not on its own stack.
std::optional<Range> LiveTarget::own_stack(const ThreadInfo& thread) const {
  const Home home = home_of(thread);
  const Address sp = thread.registers->sp();
  if (home.mapping == nullptr || !home.mapping->range.contains(sp) || sp >= home.end) return std::nullopt;
  return at_most({std::max(home.mapping->range.start, sp - kRedZone), home.end}, kMaxStack);
}

// The stack of a thread that is not on its own: in a signal handler on an alternate stack, or in a coroutine.
std::optional<Range> LiveTarget::foreign_stack(const ThreadInfo& thread) const {
  const Address sp = thread.registers->sp();
  const Mapping* at = mapping_of(sp);
  if (at == nullptr) return std::nullopt;
  const Address start = std::max(at->range.start, sp - kRedZone);
  if (at->path == "[stack]") return at_most({start, at->range.end}, kMaxStack);
  return Range{start, std::min(at->range.end, sp + kForeignStack)};
}

// The thread's own stack below the foreign one, from the lowest address that the foreign one, already copied, points
// to: a frame's caller is never below that.
std::optional<Range> LiveTarget::stack_below(const ThreadInfo& thread, const Range& foreign) const {
  const Home home = home_of(thread);
  if (home.mapping == nullptr) return std::nullopt;
  const Range& range = home.mapping->range;
  std::vector<Address> words(foreign.size() / sizeof(Address));
  const std::size_t n = memory_.read(foreign.start & ~Address{7}, std::as_writable_bytes(std::span(words)));
  // A thread that overflowed its stack left it at its lower end: its sp is in a guard page, or in the 1 MiB that the
  // kernel keeps free there.
  constexpr std::uint64_t kGuard = 1u << 20;
  const auto in_guard = [&](Address a) {
    if (a >= range.start || range.start - a > kGuard) return false;
    const Mapping* below = mapping_of(a);
    return below == nullptr || !below->readable;
  };
  Address lowest = home.end;
  for (std::size_t i = 0; i < n / sizeof(Address); ++i) {
    if (words[i] >= range.start && words[i] < lowest) lowest = words[i];
    else if (in_guard(words[i])) lowest = range.start;
  }
  if (lowest >= home.end) return std::nullopt;
  return at_most({std::max(range.start, (lowest & ~Address{7}) - kRedZone), home.end}, kMaxStack);
}

// Threads on their own stacks come first. Any other memory may be of any kind, and the stack pointer does not show
// which: if it belongs to a file that does not answer, everything that is read after it is missing as well.
void LiveTarget::copy_stacks() {
  std::vector<Range> own, foreign, below;
  std::vector<const ThreadInfo*> elsewhere;
  for (const ThreadInfo& t : threads_) {
    if (!t.registers) continue;
    if (const auto stack = own_stack(t)) {
      own.push_back(*stack);
    } else if (const auto other = foreign_stack(t)) {
      foreign.push_back(*other);
      elsewhere.push_back(&t);
    }
  }
  memory_.copy_stacks(own, foreign.size() * kForeignStack);
  if (foreign.empty()) return copy_generated_code();
  memory_.copy_stacks(foreign);
  for (std::size_t i = 0; i < foreign.size(); ++i)
    if (const auto stack = stack_below(*elsewhere[i], foreign[i])) below.push_back(*stack);
  memory_.copy_stacks(below);
  copy_generated_code();
}

// Code in anonymous memory (a JIT compiler's) has no file to be read from later, and a return address into it is
// accepted only if the bytes before it are a call. So this copies the pages that program counters and words on the
// stacks point to, and some before them, where the function shows whether it keeps a frame pointer.
void LiveTarget::copy_generated_code() {
  std::vector<Range> generated;
  for (const Mapping& m : mappings_)
    if (m.executable && m.path.empty()) generated.push_back(m.range);
  if (generated.empty()) return;
  constexpr std::size_t kMaxPages = 4096;
  constexpr Address kPageMask = ~Address{4095};
  constexpr std::uint64_t kFunction = 16u << 10, kEpilogue = 64;
  std::set<Address> pages;
  const auto add = [&](Address a) {
    if (a < generated.front().start || a > generated.back().end || pages.size() >= kMaxPages) return;
    const auto after = std::upper_bound(generated.begin(), generated.end(), a - 1,
                                        [](Address x, const Range& r) { return x < r.start; });
    if (after == generated.begin() || !std::prev(after)->contains(a - 1)) return;
    const Range& code = *std::prev(after);
    const Address from = a - code.start < kFunction ? code.start : a - kFunction;
    for (Address page = from & kPageMask; page < std::min(code.end, a + kEpilogue); page += 4096) pages.insert(page);
  };
  for (const ThreadInfo& t : threads_)
    if (t.registers) add(t.registers->pc() + 1);
  memory_.for_each_stack_piece([&](const Range& piece, std::span<const std::byte> bytes) {
    for (std::size_t at = -piece.start & 7; at + sizeof(Address) <= bytes.size() && pages.size() < kMaxPages;
         at += sizeof(Address)) {
      Address word = 0;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      add(word);
    }
  });
  std::vector<Range> wanted;
  for (const Address page : pages) wanted.push_back({page, page + 4096});
  memory_.fetch_pages(wanted);
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
      thread.problem = has_ended ? "it has ended; the process continues in its other threads" : s.problem;
      continue;
    }
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
    return t.problem == "it ended" || !met.contains(t.tid) || (t.tid != pid_ && (t.state == 'Z' || t.state == 'X'));
  });
}

bool LiveTarget::mappings_fit() const {
  return std::all_of(threads_.begin(), threads_.end(), [&](const ThreadInfo& t) {
    return !t.registers || (mapping_of(t.registers->sp()) != nullptr && mapping_of(t.registers->pc()) != nullptr);
  });
}

// Runs on the reader's thread. Calls that may wait for another process are made inside blocking(), into local
// variables.
void LiveTarget::read_stopped_process(LeavableThread& reader) {
  for (ThreadInfo& t : threads_)
    if (!t.registers && !t.problem.empty() && t.state != 'Z' && t.state != 'X') add_uninterruptible(t, reader);
  // A library was loaded or a thread's stack mapped since prepare(). A wild pc or sp causes this once more, to no
  // effect. Files are opened when the process runs again; until then everything is read from memory.
  if (!mappings_fit()) {
    Result<std::string> text;
    reader.blocking([&] { text = proc::read_file(task_dir() + "/maps"); });
    if (text) {
      mappings_ = proc::parse_maps(*text);
      modules_fit_ = false;
    } else {
      problems_.push_back({attach_error(pid_, text.error().os_errno).message(), std::nullopt});
    }
  }
  // A process can be seized and still be unreadable: a system call filter may refuse just one of the calls.
  if (const auto any =
          std::find_if(mappings_.begin(), mappings_.end(), [](const Mapping& m) { return m.readable && m.inode != 0; });
      any != mappings_.end()) {
    char byte = 0;
    iovec local{&byte, 1}, remote{reinterpret_cast<void*>(any->range.start), 1};
    int refused = 0;
    reader.blocking([&] {
      if (process_vm_readv(memory_tid_, &local, 1, &remote, 1, 0) < 0) refused = errno;
    });
    if (refused == EPERM || refused == ENOSYS) {
      unreadable_ = Problem{
          fmt::format("its memory cannot be read, so there are no callers and no Python: process_vm_readv: {}",
                      std::strerror(refused)),
          fmt::format("a system call filter may refuse it: `rankstacks doctor --pids {}` shows whether it does", pid_)};
    }
  }
  copy_stacks();
}

void LiveTarget::report_cuts(const StoppedProcess& stopped, bool in_time) {
  constexpr double kMiB = 1u << 20;
  if (stopped.is_unsettled())
    cuts_.push_back({"its threads are created faster than they can be stopped: some kept running, and are not shown",
                     std::nullopt});
  if (does_not_answer_) {
    cuts_.push_back({fmt::format("its memory does not answer: it was resumed after {:.1f} s in the middle of a read, "
                                 "and what had not been read by then is missing",
                                 stopped_ms_ / 1000),
                     fmt::format("part of it may be a file of a file system that does not answer, see /proc/{}/maps, "
                                 "or a userfaultfd that nobody serves",
                                 pid_)});
  } else if (!in_time) {
    cuts_.push_back(
        {fmt::format("it was resumed after {:.1f} s: what had not been read by then is missing", stopped_ms_ / 1000),
         std::nullopt});
  }
  if (const std::size_t left_out = memory_.stack_bytes_left_out(); left_out > 0 && in_time) {
    cuts_.push_back({fmt::format("the limit of memory to copy from one process is reached: {:.0f} MiB of its stacks, "
                                 "the outermost parts, are left out",
                                 std::ceil(static_cast<double>(left_out) / kMiB)),
                     "if the machine has more memory, allow more with --memory"});
  } else if (memory_.is_cut() && in_time) {
    cuts_.push_back(
        {"the limit of memory to copy from one process is reached: part of what its stacks and its Python refer to is "
         "left out",
         "if the machine has more memory, allow more with --memory"});
  }
}

// A pid is reused: the start time shows whether this is still the process that was prepared. It may run another program
// since.
Result<proc::Stat> LiveTarget::prepared_process_now() {
  const auto stat = proc::stat_of(pid_, memory_tid_);
  const auto leader = memory_tid_ == pid_ ? stat : proc::stat_of(pid_);
  if (!stat || !leader || leader->start_ticks != start_ticks_)
    return fail({.code = ErrorCode::kGone, .subject = subject_, .what = "it ended before it could be stopped"});
  if (!stat->same_program(program_)) {
    program_ = *stat;
    if (auto again = read_mappings(); !again) return fail(again.error());
    modules_fit_ = false;
  }
  return *stat;
}

// The threads that have ended, and those in a wait that cannot be interrupted.
std::vector<Tid> LiveTarget::threads_that_cannot_stop() {
  std::vector<Tid> cannot_stop;
  for (ThreadInfo& t : threads_) {
    // A thread is also in state D for the short time of a page fault: only one that stays in it cannot be stopped.
    for (int tries = 0; t.state == 'D' && tries < kUninterruptibleTries; ++tries) {
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
      const auto now = proc::stat_of(pid_, t.tid);
      t.state = now ? now->state : 'X';
    }
    if (t.state == 'D' || t.state == 'Z' || t.state == 'X') cannot_stop.push_back(t.tid);
  }
  return cannot_stop;
}

// Walks the copy again after a reader was abandoned. A page of a mapped file may have blocked that reader, and this
// walk may touch the same page, so it runs on a thread that can be abandoned as well.
void LiveTarget::run_on_copy(const std::function<void()>& walk, std::chrono::steady_clock::duration longest) {
  LeavableThread reader;
  memory_.open(0, &reader);
  reader.start(walk);
  bool done = reader.wait_until(std::chrono::steady_clock::now() + longest);
  while (!done && !reader.leave_behind()) done = reader.wait_until(std::chrono::steady_clock::now() + kReturnTimeout);
  memory_.close();
}

Result<void> LiveTarget::capture(const std::function<void()>& while_stopped, const CopyLimits& limits) {
  const auto before = prepared_process_now();
  if (!before) return fail(before.error());
  read_threads();
  const std::vector<Tid> cannot_stop = threads_that_cannot_stop();

  memory_.clear(limits);  // drops what was read while the process ran: only reads while it is stopped are consistent
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
  auto stopped = StoppedProcess::stop(pid_, start_ticks_, cannot_stop);
  if (!stopped) {
    if (stopped.error().os_errno == 0) return fail(stopped.error());
    return fail(attach_error(pid_, stopped.error().os_errno));
  }
  // If all of its threads are in state D, none was stopped, but the process is captured all the same.
  const bool any = stopped->stopped_at_wall() != decltype(captured_at_){};
  captured_at_ = any ? stopped->stopped_at_wall() : std::chrono::system_clock::now();
  const auto end = (any ? stopped->stopped_at() : std::chrono::steady_clock::now()) + limits.longest;
  add_threads(*stopped);

  memory_.open(memory_tid_, &reader);
  stopped_until_ = Deadline::at(end);
  reader.start([&] {
    read_stopped_process(reader);
    while_stopped();
  });  // the thread keeps its raised scheduling class to its end; otherwise it might be late to report that it is done
  const bool in_time = reader.wait_until(end);
  if (!in_time) memory_.end_fetching();
  const auto after = proc::stat_of(pid_, memory_tid_);
  stopped_ms_ = stopped->resume();
  // As it can read no more memory, the reader soon ends, unless the kernel does not return from a read.
  while (!in_time && !does_not_answer_ && !reader.wait_until(std::chrono::steady_clock::now() + kReturnTimeout))
    does_not_answer_ = reader.leave_behind();
  if (does_not_answer_) memory_.abandon_read();
  memory_.close();
  stopped_until_.reset();
  if (!after || !after->same_program(*before)) {
    return fail({.code = after ? ErrorCode::kMismatch : ErrorCode::kGone,
                 .subject = subject_,
                 .what = after ? "it has executed another program (exec) while it was looked at"
                               : "it has ended while it was looked at",
                 .hint = after ? "look again" : ""});
  }
  report_cuts(*stopped, in_time);
  if (!modules_fit_) {
    open_new_files();
    make_modules();
  }
  if (does_not_answer_) run_on_copy(while_stopped, limits.longest);
  return {};
}

std::size_t LiveTarget::read(Address address, std::span<std::byte> into) const noexcept {
  std::size_t done = 0;
  while (done < into.size()) {
    const Address a = address + done;
    // Memory that never changes comes from the file: segments that are not writable. (Relocated read-only data is in a
    // writable segment.)
    if (const Module* module = modules_fit_ ? modules_.find(a) : nullptr; module != nullptr && module->image) {
      const Vaddr v = module->to_vaddr(a);
      if (const Elf64_Phdr* segment = module->image->load_of(v); segment != nullptr && (segment->p_flags & PF_W) == 0) {
        const auto bytes = module->image->at(v);
        if (!bytes.empty()) {
          const std::size_t n = std::min(bytes.size(), into.size() - done);
          memory_.copy_from_file(bytes.first(n), into.data() + done);
          done += n;
          continue;
        }
      }
    }
    const std::size_t n =
        memory_.read(a, into.subspan(done, std::min<std::size_t>(into.size() - done, 4096 - (a & 4095))));
    if (n == 0) break;
    done += n;
  }
  record(address, done);
  return done;
}

void LiveTarget::prefetch(std::span<const Range> ranges) const noexcept { memory_.fetch_pages(ranges); }

}  // namespace rankstacks::target
