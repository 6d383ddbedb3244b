#include "target/still_threads.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <unordered_map>

#include "target/proc.h"
#include "target/run_time.h"
#include "target/thread_pointer.h"

namespace rankstacks::target {
namespace {

std::optional<RunCount> switches_of(Pid pid, Tid tid) {
  const auto voluntary = proc::thread_status_number(pid, tid, "voluntary_ctxt_switches");
  const auto others = proc::thread_status_number(pid, tid, "nonvoluntary_ctxt_switches");
  if (!voluntary || !others) return std::nullopt;
  return RunCount{RunCount::Of::kSwitches,
                  static_cast<std::uint64_t>(*voluntary) + static_cast<std::uint64_t>(*others)};
}

std::optional<std::uint64_t> runs_in(const FileDescriptor& schedstat) {
  const auto time = read_schedstat(schedstat);
  return time ? std::optional(static_cast<std::uint64_t>(time->runs)) : std::nullopt;
}

// A thread that exists was given a processor at least once: a count of 0 means that the kernel does not count.
std::optional<RunCount> run_count_of(Pid pid, Tid tid) {
  const auto time = run_time_of(pid, tid);
  if (!time || time->runs <= 0) return switches_of(pid, tid);
  return RunCount{RunCount::Of::kRuns, static_cast<std::uint64_t>(time->runs)};
}

}  // namespace

SeenThreads see_threads(Pid pid, const std::vector<Tid>& tids, const SeenThreads& before) {
  std::unordered_map<Tid, const SeenThread*> known;
  for (const SeenThread& thread : before.threads)
    if (thread.registers && thread.schedstat) known.emplace(thread.tid, &thread);
  SeenThreads seen;
  seen.threads.reserve(tids.size());
  for (const Tid tid : tids) {
    const auto stood = known.find(tid);
    if (stood != known.end() && runs_in(*stood->second->schedstat) == stood->second->count.count) {
      seen.threads.push_back(*stood->second);
      seen.threads.back().pointer = supposed_thread_pointer(tid);
      continue;
    }
    auto schedstat = open_schedstat(AT_FDCWD, fmt::format("/proc/{}/task/{}/schedstat", pid, tid).c_str());
    const auto runs = schedstat ? runs_in(*schedstat) : std::nullopt;
    const auto count = runs && *runs > 0 ? std::optional(RunCount{RunCount::Of::kRuns, *runs}) : run_count_of(pid, tid);
    const auto text =
        count ? proc::read_file(fmt::format("/proc/{}/task/{}/syscall", pid, tid)) : Result<std::string>(std::string());
    if (!text && text.error().os_errno != ENOENT && text.error().os_errno != ESRCH) {
      seen.refused = text.error().os_errno;
      return seen;
    }
    if (!count || !text) {
      // It has ended, or there is no such file at all.
      if (!proc::stat_of(pid, tid)) continue;
      seen.refused = ENOENT;
      return seen;
    }
    SeenThread& thread = seen.threads.emplace_back();
    thread = {tid, *count, proc::parse_standing(*text), std::nullopt, nullptr};
    if (thread.registers && count->of == RunCount::Of::kRuns) thread.schedstat = std::move(schedstat);
    if (thread.registers) thread.pointer = supposed_thread_pointer(tid);
  }
  return seen;
}

std::vector<Tid> ran_since(Pid pid, const SeenThreads& seen) {
  std::vector<Tid> ran;
  for (const SeenThread& thread : seen.threads) {
    bool stood = thread.registers.has_value();
    if (stood && thread.count.of == RunCount::Of::kRuns) {
      stood = thread.schedstat ? runs_in(*thread.schedstat) == thread.count.count
                               : run_count_of(pid, thread.tid) == thread.count;
    } else if (stood) {
      stood = proc::standing_registers(pid, thread.tid).has_value();  // before the count: this is where it ends
      stood = stood && switches_of(pid, thread.tid) == thread.count;
    }
    if (!stood) ran.push_back(thread.tid);
  }
  return ran;
}

std::optional<std::size_t> number_of_threads(Pid pid) {
  struct stat tasks {};
  if (::stat(fmt::format("/proc/{}/task", pid).c_str(), &tasks) != 0 || tasks.st_nlink < 2) return std::nullopt;
  return tasks.st_nlink - 2;
}

}  // namespace rankstacks::target
