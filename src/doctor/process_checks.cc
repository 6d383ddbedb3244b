#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "doctor/file_checks.h"
#include "doctor/gpu_checks.h"
#include "doctor/refusal.h"
#include "doctor/target_checks.h"
#include "target/proc.h"

namespace rankstacks::doctor {
namespace {

constexpr Area kArea = Area::kAttach;

std::string name_of(const System& system, Pid pid) {
  const auto text = system.read_file(fmt::format("/proc/{}/stat", pid));
  const auto stat = text ? target::proc::parse_stat(*text) : std::nullopt;
  return stat ? stat->name : "?";
}

struct Task {
  Tid tid = 0;
  ProcessStatus status;
};

class ProcessCheck {
 public:
  ProcessCheck(const System& system, const Self& self, const CorePattern& pattern, const CoreDestination& destination,
               const gpu::NvmlAnswer& nvml, Pid pid)
      : system_(system),
        self_(self),
        pattern_(pattern),
        destination_(destination),
        nvml_(nvml),
        pid_(pid),
        directory_(fmt::format("/proc/{}/", pid)) {}

  Section run() {
    section_.pid = pid_;
    const auto stat_text = system_.read_file(directory_ + "stat");
    const auto status_text = system_.read_file(directory_ + "status");
    const auto stat = stat_text ? target::proc::parse_stat(*stat_text) : std::nullopt;
    if (!stat || !status_text) {
      absent();
      return std::move(section_);
    }
    section_.name = stat->name;
    status_ = parse_status(*status_text);
    // /proc/TID exists for each thread, though no listing shows it.
    if (status_.process != 0 && status_.process != pid_) {
      add(problem(
          "process", kArea,
          fmt::format("a thread of process {} ({}), not a process", status_.process, name_of(system_, status_.process)),
          {fmt::format("name the process: --pids {}", status_.process)}));
      return std::move(section_);
    }
    if (system_.read_link("/proc/self") == std::to_string(pid_)) {
      add(problem("process", kArea, "this is rankstacks itself, which cannot look at itself",
                  {"name the processes of the job: --pids, or --job"}));
      return std::move(section_);
    }
    if (stat->kernel_thread()) {
      add(problem("process", kArea, "a kernel thread: it has no stack of its own to show",
                  {fmt::format("its kernel stack: cat /proc/{}/stack", pid_)}));
      return std::move(section_);
    }
    read_tasks();
    const auto alive = std::find_if(tasks_.begin(), tasks_.end(),
                                    [](const Task& t) { return t.status.state != 'Z' && t.status.state != 'X'; });
    if (alive == tasks_.end()) {
      add(problem("process", kArea,
                  fmt::format("a zombie: it has ended, and its parent, pid {} ({}), has not collected its exit status",
                              stat->parent, name_of(system_, stat->parent)),
                  {"its core, if it left one, is what can be looked at"}));
      return std::move(section_);
    }
    threads(alive->tid);
    if (!traced()) seize(alive->tid);
    memory(alive->tid);
    namespaces();
    for (Finding& f : check_core_of(system_, self_, pattern_, pid_, status_, destination_)) add(std::move(f));
    files();
    return std::move(section_);
  }

 private:
  void add(Finding finding) { section_.findings.push_back(std::move(finding)); }

  // kill(2) finds processes that a /proc with hidepid does not show.
  void absent() {
    const int sent = system_.try_signal(pid_);
    if (sent == 0 || sent == EPERM) {
      add(problem("process", kArea, "it exists, and /proc does not show it: hidepid",
                  {"sudo mount -o remount,hidepid=0 /proc", "sudo rankstacks ..."}));
      return;
    }
    std::vector<std::string> mends;
    if (self_.own_pid_namespace())
      mends.push_back(
          "this is a pid namespace of its own (a container): name it by the number that `ps` shows in here, or run "
          "rankstacks on the host");
    else
      mends.push_back(
          "if the number is one of a container, name it by the number that `ps` shows on this machine: grep NSpid "
          "/proc/[0-9]*/status");
    add(problem("process", kArea, "no such process", std::move(mends)));
  }

  void read_tasks() {
    for (const std::string& name : system_.list(directory_ + "task")) {
      const auto text = system_.read_file(directory_ + "task/" + name + "/status");
      if (text && !name.empty() &&
          std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); }))
        tasks_.push_back({static_cast<Tid>(std::strtol(name.c_str(), nullptr, 10)), parse_status(*text)});
    }
    std::sort(tasks_.begin(), tasks_.end(), [this](const Task& a, const Task& b) {
      return std::pair(a.tid != pid_, a.tid) < std::pair(b.tid != pid_, b.tid);
    });
  }

  void threads(Tid alive) {
    const auto count_of = [&](char state) {
      return std::count_if(tasks_.begin(), tasks_.end(), [state](const Task& t) { return t.status.state == state; });
    };
    const auto all = tasks_.size();
    std::string found = counted(all, "thread");
    if (alive != pid_) found += "; the main thread has ended, the others go on";
    if (const auto stopped = count_of('T'); stopped > 0)
      found += fmt::format("; {} stopped by a signal, and will stay so", stopped);
    if (const auto waiting = count_of('D'); waiting > 0) {
      add(note("threads", kArea,
               fmt::format("{}; {} in an uninterruptible wait (state D): such a thread cannot be stopped, and its "
                           "stack is read as far as /proc shows it",
                           found, waiting),
               {fmt::format("look at its storage, and at what it waits for: cat /proc/{}/wchan", pid_)}));
      return;
    }
    add(ok("threads", kArea, found));
  }

  bool traced() {
    std::vector<Pid> tracers;
    std::size_t threads = 0;
    for (const Task& task : tasks_) {
      if (task.status.tracer == 0) continue;
      ++threads;
      if (std::find(tracers.begin(), tracers.end(), task.status.tracer) == tracers.end())
        tracers.push_back(task.status.tracer);
    }
    if (tracers.empty()) return false;
    std::vector<std::string> names, mends;
    for (const Pid tracer : tracers) {
      names.push_back(fmt::format("pid {} ({})", tracer, name_of(system_, tracer)));
      mends.push_back(fmt::format("end that tracer, or let it detach: kill {}", tracer));
    }
    add(problem("ptrace", kArea,
                fmt::format("{} of its threads are traced by {}: a thread has one tracer at most", threads,
                            fmt::join(names, ", ")),
                std::move(mends)));
    return true;
  }

  void seize(Tid tid) {
    if (self_.filter_kills())
      return add(problem("ptrace", kArea, "not tried: a system call filter kills the process that calls it",
                         mends_for_seccomp(self_)));
    const int refused = system_.try_seize(tid);
    if (refused == 0) return add(ok("ptrace", kArea, "tried: it can be seized"));
    if (refused == ESRCH) return add(problem("ptrace", kArea, "it ended meanwhile", {"name a process that runs"}));
    Refusal refusal = explain_refusal(system_, self_, pid_, status_);
    add(problem("ptrace", kArea, fmt::format("tried: {}: {}", std::strerror(refused), refusal.why),
                std::move(refusal.mends)));
  }

  // The finding on ptrace gave the reason for a refusal: the same conditions hold for the process's memory.
  bool said() const {
    return section_.findings.back().check == "ptrace" && section_.findings.back().severity == Severity::kProblem;
  }

  void memory(Tid tid) {
    const auto text = system_.read_file(directory_ + "maps");
    if (!text) {
      Refusal refusal = explain_refusal(system_, self_, pid_, status_);
      add(problem("memory", kArea, fmt::format("tried: /proc/PID/maps: {}", std::strerror(text.error().os_errno)),
                  said() ? std::vector<std::string>{} : std::move(refusal.mends)));
      return;
    }
    const auto maps = target::proc::parse_maps(*text);
    const auto readable =
        std::find_if(maps.begin(), maps.end(), [](const target::Mapping& m) { return m.readable && m.inode != 0; });
    if (self_.filter_kills()) return add(note("memory", kArea, "process_vm_readv was not tried"));
    if (readable == maps.end())
      return add(note("memory", kArea, "no file is mapped in it: nothing to try process_vm_readv with"));
    if (const int refused = system_.try_read(tid, readable->range.start); refused != 0) {
      Refusal refusal = explain_refusal(system_, self_, pid_, status_);
      add(problem("memory", kArea, fmt::format("tried: process_vm_readv: {}", std::strerror(refused)),
                  said() ? std::vector<std::string>{} : std::move(refusal.mends)));
    } else {
      add(ok("memory", kArea, "tried: process_vm_readv reads it"));
    }
    const int reached =
        system_.try_reach(fmt::format("{}map_files/{:x}-{:x}", directory_, readable->range.start, readable->range.end));
    deleted_readable_ = reached == 0;
  }

  void namespaces() {
    const Namespaces theirs = namespaces_of(system_, std::to_string(pid_));
    std::vector<std::string> others;
    const auto compare = [&](const char* what, const std::optional<std::string>& a,
                             const std::optional<std::string>& b) {
      if (a && b && *a != *b) others.push_back(what);
    };
    compare("pid", theirs.pid, self_.namespaces.pid);
    compare("user", theirs.user, self_.namespaces.user);
    compare("mount", theirs.mount, self_.namespaces.mount);
    if (!theirs.pid && !theirs.user && !theirs.mount)
      return add(note("namespaces", kArea, "its namespaces may not be looked at"));
    if (others.empty()) return add(ok("namespaces", kArea, "the same as this tool's"));
    std::string found = fmt::format("another container than this tool's (its {} namespace{})", fmt::join(others, ", "),
                                    plural(others.size()));
    if (status_.pids.size() > 1) found += ": it has a pid of its own in there";
    add(note("namespaces", kArea, found + "; its files are opened through /proc/PID"));
  }

  void files() {
    if (self_.filter_kills()) return add(note("files", Area::kNames, "not looked at: its memory cannot be read"));
    const auto facts = system_.open_process(pid_);
    if (!facts) {
      // Without the right to read, there are no files; an earlier finding says so.
      const bool refused = std::any_of(section_.findings.begin(), section_.findings.end(), [](const Finding& f) {
        return f.area == kArea && f.severity == Severity::kProblem;
      });
      if (!refused)
        add(problem("files", kArea, facts.error().message(),
                    {facts.error().hint.empty() ? "try again: it may be starting or ending" : facts.error().hint}));
      return;
    }
    std::vector<std::string> unreadable;
    std::size_t unread = 0;
    for (const FileFacts& file : facts->files) {
      if (!file.opened) unreadable.push_back(file.path);
      unread += file.unread ? 1 : 0;
    }
    if (unreadable.empty()) {
      add(ok("files", Area::kNames,
             fmt::format("its executable and {} libraries, opened as they were loaded",
                         facts->files.empty() ? 0 : facts->files.size() - 1)));
    } else {
      add(note("files", Area::kNames,
               fmt::format("{} of {} cannot be opened as they were loaded: {}: {}", unreadable.size(),
                           facts->files.size(), list_names(unreadable),
                           unread == 0 ? "only their exported names are there"
                           : unread == unreadable.size()
                               ? "nor can what of them is in memory be read"
                               : fmt::format("only their exported names are there, and of {} nothing", unread)),
               deleted_readable_ ? std::vector<std::string>{} : mends_for_ptrace(self_)));
    }
    for (Finding& f : check_names(*facts)) add(std::move(f));
    add(check_python(*facts, kArea));
    std::vector<std::string> names;
    for (const Task& task : tasks_) names.push_back(task.status.name);
    for (Finding& f : check_gpu_of(system_, nvml_, pid_, *facts, names)) add(std::move(f));
  }

  const System& system_;
  const Self& self_;
  const CorePattern& pattern_;
  const CoreDestination& destination_;
  const gpu::NvmlAnswer& nvml_;
  Pid pid_;
  std::string directory_;
  ProcessStatus status_;
  std::vector<Task> tasks_;
  bool deleted_readable_ = false;
  Section section_;
};

}  // namespace

Section check_process(const System& system, const Self& self, const CorePattern& pattern,
                      const CoreDestination& destination, const gpu::NvmlAnswer& nvml, Pid pid) {
  return ProcessCheck(system, self, pattern, destination, nvml, pid).run();
}

}  // namespace rankstacks::doctor
