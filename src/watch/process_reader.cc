#include "watch/process_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "base/directory_stream.h"
#include "target/proc.h"
#include "target/run_time.h"

namespace rankstacks::watch {
namespace {

constexpr std::size_t kMaxThreads = 16'384;  // of one process
constexpr std::size_t kMaxChildren = 4'096;  // of the whole job
constexpr std::size_t kLongestFile = 4'096;  // stat, schedstat and io are shorter
// Of pools of threads most never run. A thread that did not run for so many readings is read at one in so many, until
// it has; the processor time of the process, which is read each time, has its part at once.
constexpr std::size_t kReadingsUntilIdle = 12;
constexpr std::size_t kReadingsOfIdle = 4;

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// The whole of a short file of /proc; empty if it cannot be read.
std::string_view read_short(int directory, const char* name, std::array<char, kLongestFile>& into) {
  const FileDescriptor file(openat(directory, name, O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return {};
  const ssize_t n = ::read(file.get(), into.data(), into.size());
  return n <= 0 ? std::string_view() : std::string_view(into.data(), static_cast<std::size_t>(n));
}

std::int64_t number_after(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  std::int64_t number = 0;
  const char* const begin = text.data() + at + name.size();
  std::from_chars(begin, text.data() + text.size(), number);
  return number;
}

// /proc/PID/io (Documentation/filesystems/proc.rst): "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\n..."
void read_io(std::string_view text, Counters& counters) {
  counters.bytes = number_after(text, "rchar: ") + number_after(text, "\nwchar: ");
  counters.reads = number_after(text, "\nsyscr: ");
  counters.writes = number_after(text, "\nsyscw: ");
}

void add(const target::RunTime& time, Counters& counters) {
  counters.runs += time.runs;
  counters.waited_ms += time.waited_ms;
}

}  // namespace

void ProcessReader::open(WatchedProcess id, std::size_t rank, bool is_rank, bool is_new) {
  Process process{.id = id, .rank = rank, .is_rank = is_rank, .is_new = is_new};
  process.directory =
      FileDescriptor(::open(fmt::format("/proc/{}", id.pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::array<char, kLongestFile> buffer;
  const auto stat = process.directory.is_open()
                        ? target::proc::parse_stat(read_short(process.directory.get(), "stat", buffer))
                        : std::nullopt;
  process.ended = !stat || (id.start_ticks != 0 && stat->start_ticks != id.start_ticks);
  if (stat && id.start_ticks == 0) process.id.start_ticks = stat->start_ticks;
  processes_.push_back(std::move(process));
}

void ProcessReader::add_rank(const WatchedProcess& rank) {
  const auto is_same = [&](const WatchedProcess& other) {
    return other.pid == rank.pid && (rank.start_ticks == 0 || other.start_ticks == rank.start_ticks);
  };
  if (std::any_of(rank_processes_.begin(), rank_processes_.end(), is_same)) return;
  // It may have been met as a child.
  std::erase_if(processes_, [&](const Process& process) { return !process.is_rank && is_same(process.id); });
  open(rank, ranks_++, true, false);
  rank_processes_.push_back(processes_.back().id);
#ifdef SYS_pidfd_open
  ends_.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, rank.pid, 0)));
#else
  ends_.emplace_back();
#endif
}

void ProcessReader::find_children() {
  std::map<Pid, std::size_t> rank_of;  // of the ranks and all that is known to descend from them
  for (const Process& process : processes_)
    if (!process.ended) rank_of.emplace(process.id.pid, process.rank);
  std::map<Pid, target::proc::Stat> others;
  for (const Pid pid : target::proc::processes())
    if (!rank_of.contains(pid))
      if (auto stat = target::proc::stat_of(pid); stat && !stat->kernel_thread() && !stat->ends())
        others.emplace(pid, std::move(*stat));
  for (bool found = true; found;) {
    found = false;
    for (auto other = others.begin(); other != others.end() && processes_.size() < ranks_ + kMaxChildren;) {
      const auto parent = rank_of.find(other->second.parent);
      if (parent == rank_of.end() || other->first == getpid()) {
        ++other;
        continue;
      }
      const std::uint64_t start = other->second.start_ticks;
      open({other->first, start}, parent->second, false, last_read_ticks_ != 0 && start > last_read_ticks_);
      rank_of.emplace(other->first, parent->second);
      other = others.erase(other);
      found = true;
    }
  }
}

void ProcessReader::list_threads(Process& process, Counters& counters) {
  const int tasks = openat(process.directory.get(), "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const DirectoryStream listing(tasks < 0 ? nullptr : fdopendir(tasks));
  std::array<char, kLongestFile> buffer;
  const auto before = std::exchange(process.threads, {});
  for (std::size_t n = 0; listing && n < kMaxThreads;) {
    const dirent* entry = readdir(listing.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] == '.') continue;
    ++n;
    const auto tid = static_cast<Tid>(number_after(entry->d_name, ""));
    const auto kept = before.find(tid);
    auto schedstat = kept == before.end() ? nullptr : kept->second.schedstat;
    auto time = schedstat ? target::read_schedstat(*schedstat) : std::nullopt;
    if (!time) {
      // It is new, has the tid of one that has ended, or its file is not kept open.
      std::array<char, 64> name{};
      fmt::format_to_n(name.data(), name.size() - 1, "{}/schedstat", entry->d_name);
      schedstat = target::open_schedstat(tasks, name.data());
      time = schedstat ? target::read_schedstat(*schedstat)
                       : target::parse_schedstat(read_short(tasks, name.data(), buffer));
    }
    if (!time) continue;
    add(*time, counters);
    if (schedstat) process.threads.emplace_hint(process.threads.end(), tid, Thread{std::move(schedstat), *time});
  }
}

// As many threads as before, all of which were there before and still are: they are all. Else nothing is added. (Of
// those that never run that is seen some readings later.)
bool ProcessReader::read_same_threads(Process& process, std::size_t number, Counters& counters) {
  if (process.threads.size() != number) return false;
  ++process.readings;
  Counters all = counters;
  for (auto& [tid, thread] : process.threads) {
    const bool is_idle = thread.not_run >= kReadingsUntilIdle;
    if (!is_idle || (static_cast<std::size_t>(tid) + process.readings) % kReadingsOfIdle == 0) {
      const auto time = target::read_schedstat(*thread.schedstat);
      if (!time) return false;
      thread.not_run = time->runs == thread.time.runs ? thread.not_run + 1 : 0;
      thread.time = *time;
    }
    add(thread.time, all);
  }
  counters = all;
  return true;
}

bool ProcessReader::read_counters(Process& process, Counters& counters) {
  std::array<char, kLongestFile> buffer;
  const int directory = process.directory.get();
  const auto stat = target::proc::parse_stat(read_short(directory, "stat", buffer));
  if (!stat || stat->ends()) return false;
  counters.cpu_ms = stat->cpu_ms;
  counters.is_ready = stat->state == 'R';
  read_io(read_short(directory, "io", buffer), counters);
  const auto threads = static_cast<std::size_t>(stat->threads);
  if (!read_same_threads(process, threads, counters)) list_threads(process, counters);
  return true;
}

Reading ProcessReader::read() {
  Reading reading{.at = Seconds(seconds_of(CLOCK_MONOTONIC)), .ranks = ranks_, .processes = {}};
  for (Process& process : processes_) {
    ProcessReading one{.pid = process.id.pid,
                       .start_ticks = process.id.start_ticks,
                       .rank = process.rank,
                       .is_rank = process.is_rank,
                       .is_new = process.is_new};
    process.ended = process.ended || !read_counters(process, one.counters);
    one.ended = process.ended;
    if (process.ended) process.threads.clear();
    process.is_new = false;
    reading.processes.push_back(one);
  }
  std::erase_if(processes_, [](const Process& process) { return process.ended && !process.is_rank; });
  last_read_ticks_ = static_cast<std::uint64_t>(seconds_of(CLOCK_BOOTTIME) * static_cast<double>(sysconf(_SC_CLK_TCK)));
  return reading;
}

// The exit status is the last field of /proc/PID/stat (proc(5): exit_code, in the form of waitpid(2)).
End ProcessReader::end_of(std::size_t rank) const {
  const auto process = std::find_if(processes_.begin(), processes_.end(),
                                    [&](const Process& one) { return one.is_rank && one.rank == rank; });
  if (process == processes_.end()) return End::kUnknown;
  std::array<char, kLongestFile> buffer;
  std::string_view text = read_short(process->directory.get(), "stat", buffer);
  const auto stat = target::proc::parse_stat(text);
  if (!stat) return End::kUnknown;
  if (!stat->ends()) return End::kLives;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const std::size_t last = text.rfind(' ');
  int status = 0;
  const auto [stop, error] = std::from_chars(text.data() + last + 1, text.data() + text.size(), status);
  if (last == std::string_view::npos || error != std::errc()) return End::kUnknown;
  return status == 0 ? End::kNormally : End::kFailed;
}

}  // namespace rankstacks::watch
