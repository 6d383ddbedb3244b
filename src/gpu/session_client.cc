#include "gpu/session_client.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "gpu/driver.h"
#include "gpu/machine_library.h"
#include "gpu/session.h"
#include "gpu/session_answer.h"
#include "gpu/session_requests.h"
#include "gpu/summarize.h"

namespace rankstacks::gpu {
namespace {

using Clock = std::chrono::steady_clock;

void report(char kind, std::string_view text = "") {
  send(STDOUT_FILENO, kind, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}
void refuse(const Error& error) { send(STDOUT_FILENO, 'e', pack(error)); }

void trace(int fd, std::string_view what, double ms) {
  if (fd < 0) return;
  const std::string line = fmt::format("{} {} {:.3f} ms\n", getpid(), what, ms);
  (void)!write(fd, line.data(), line.size());
}

// Times each call into the driver, on a thread of its own.
class Watchdog {
 public:
  Watchdog(const TargetProxy& target, int trace_file) : target_(target), trace_(trace_file) {
    std::thread([this] { run(); }).detach();
  }

  CallWatch watch() {
    return {.begin =
                [this](const char* call, std::chrono::milliseconds limit) {
                  begun_ = Clock::now();
                  set(call, begun_ + limit);
                },
            .end =
                [this] {
                  trace(trace_, call_.load(), std::chrono::duration<double, std::milli>(Clock::now() - begun_).count());
                  set(nullptr, Clock::time_point::max());
                },
            .event = [this](const api::Event& event) { trace_event(event); }};
  }
  void entered(Phase phase) {
    phase_ = phase;
    trace(trace_, fmt::format("phase {}", static_cast<int>(phase)),
          std::chrono::duration<double, std::milli>(Clock::now() - started_).count());
    if (phase == Phase::kTriggered) return;  // the broker reports this one when it asks
    const char byte = static_cast<char>(phase);
    report('p', {&byte, 1});
  }

 private:
  // The images of modules, of which there may be thousands, are left out.
  void trace_event(const api::Event& event) {
    if (event.kind != api::EventKind::kElfImageLoaded)
      trace(trace_, fmt::format("event {}", static_cast<std::uint32_t>(event.kind)),
            std::chrono::duration<double, std::milli>(Clock::now() - started_).count());
  }

  void set(const char* call, Clock::time_point until) {
    call_ = call;
    until_ = until.time_since_epoch().count();
  }

  void run() {
    while (true) {
      const timespec pause{0, 20'000'000};
      nanosleep(&pause, nullptr);
      const char* call = call_;
      if (call == nullptr || Clock::now().time_since_epoch().count() < until_) continue;
      report('h', call);
      target_.hangs_in(phase_);
      while (true) ::pause();  // the broker ends this process
    }
  }

  const TargetProxy& target_;
  const int trace_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point begun_ = started_;
  std::atomic<const char*> call_ = nullptr;
  std::atomic<Clock::rep> until_ = Clock::time_point::max().time_since_epoch().count();
  std::atomic<Phase> phase_ = Phase::kNothing;
};

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Loads the driver's debug engine; if there are several, the one in the driver's directory. A driver without one says
// so itself.
Result<void> load_debug_engine(const AttachPoint& point, const Machine& machine) {
  auto engines = find_machine_libraries(kDebuggerLibrary, machine);
  if (!engines) return engines.error().code == ErrorCode::kNotFound ? Result<void>() : fail(engines.error());
  const auto same_directory = std::find_if(engines->begin(), engines->end(), [&](const MachineLibrary& l) {
    return directory_of(l.path) == directory_of(point.driver().path);
  });
  const auto loaded = load(same_directory != engines->end() ? *same_directory : engines->front());
  if (!loaded) return fail(loaded.error());
  return {};
}

// Closes all descriptors but these.
void close_others(const std::vector<int>& kept) {
  std::vector<int> others;
  if (DIR* directory = opendir("/proc/self/fd")) {
    while (const dirent* entry = readdir(directory)) {
      int fd = -1;
      const std::string_view name = entry->d_name;
      if (std::from_chars(name.data(), name.data() + name.size(), fd).ec == std::errc() && fd != dirfd(directory) &&
          std::find(kept.begin(), kept.end(), fd) == kept.end())
        others.push_back(fd);
    }
    closedir(directory);
  }
  for (const int fd : others) ::close(fd);
}

bool is_own_root(const FileDescriptor& root) {
  struct stat own {
  }, theirs{};
  return stat("/", &own) == 0 && fstat(root.get(), &theirs) == 0 && own.st_dev == theirs.st_dev &&
         own.st_ino == theirs.st_ino;
}

Result<void> enter(const ClientSurroundings& surroundings) {
  const auto refuse = [&](const char* what) {
    return fail({.code = ErrorCode::kPermission,
                 .subject = fmt::format("pid {}", surroundings.point.pid()),
                 .what = what,
                 .where = {},
                 .os_errno = errno,
                 .hint = "run rankstacks as root of the machine, or inside of the container"});
  };
  for (const FileDescriptor& fd : surroundings.namespaces)
    if (setns(fd.get(), 0) != 0) return refuse("its namespaces cannot be entered");
  // An ordinary user may not do this, and need not: the process has the same root then.
  if ((fchdir(surroundings.root.get()) != 0 || chroot(".") != 0) && (errno != EPERM || !is_own_root(surroundings.root)))
    return refuse("its root directory cannot be entered");
  if (chdir("/") != 0) return refuse("its root directory cannot be entered");
  return {};
}

Result<SessionAnswer> sample(const TargetProxy& target, const Driver& driver, const ClientTask& task,
                             Watchdog& watchdog) {
  const PhaseObserver entered = [&](Phase phase) { watchdog.entered(phase); };
  std::vector<Problem> problems;
  if (task.left_by) {
    const auto freed = release(target, driver, std::nullopt, *task.left_by, entered);
    problems.push_back({fmt::format("an earlier GPU session (pid {}) had ended without detaching; {}", *task.left_by,
                                    freed ? "the process was freed from it" : freed.error().message()),
                        std::nullopt});
  }
  SessionRequest request{.core_path = {}, .core_limit = task.core_limit};
  if (task.core >= 0) request.core_path = fmt::format("/proc/self/fd/{}", task.core);
  auto session = run_session(target, driver, request, entered);
  if (!session) return fail(session.error());
  if (session->core_bytes)
    if (const auto kept = target.keep_core(); !kept) {
      session->core_bytes.reset();
      session->problems.push_back(problem_of(kept.error()));
    }
  SessionAnswer answer{.driver = session->driver,
                       .thread_held_ms = session->thread_held_ms,
                       .attach_ms = session->attach_ms,
                       .core_bytes = session->core_bytes,
                       .problems = std::move(problems)};
  answer.problems.insert(answer.problems.end(), session->problems.begin(), session->problems.end());
  FrameTable frames;
  for (const SampledDevice& device : session->devices) {
    GpuSnapshot gpu = summarize(device.state, frames, &answer.problems);
    if (gpu.execution) gpu.execution->held_ms = device.held_ms;
    answer.gpus.push_back(std::move(gpu));
  }
  for (std::size_t i = 0; i < frames.size(); ++i) answer.frames.push_back(frames[static_cast<FrameId>(i)]);
  return answer;
}

// Enters all of the process's surroundings and takes on its rights. Of the descriptors, only those of the task and the
// socket stay open. The pid namespace applies to the children of this process; the process itself can have no threads
// from here on.
Result<void> move_in(const ClientTask& task, const ClientSurroundings& surroundings, int socket) {
  std::vector<int> kept{STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, socket, task.core, task.trace},
      doors{surroundings.rights.user_namespace.get(), surroundings.of_pids.get(), surroundings.root.get()};
  for (const FileDescriptor& fd : surroundings.namespaces) doors.push_back(fd.get());
  kept.insert(kept.end(), doors.begin(), doors.end());
  close_others(kept);  // the process's memory among them
  if (auto entered = enter(surroundings); !entered) return fail(entered.error());
  if (surroundings.of_pids.is_open() && setns(surroundings.of_pids.get(), CLONE_NEWPID) != 0)
    return fail({.code = ErrorCode::kPermission,
                 .subject = fmt::format("pid {}", surroundings.point.pid()),
                 .what = "its pid namespace cannot be entered",
                 .where = {},
                 .os_errno = errno,
                 .hint = "run rankstacks as root of the machine, or inside of the container"});
  if (auto taken = target::take_on(surroundings.rights); !taken) return fail(taken.error());
  for (const int fd : doors) ::close(fd);
  return {};
}

// Returns in a child, which is inside of the pid namespace that was entered; this process ends as the child does. An
// error is returned in this process: there is no child.
Result<void> continue_in_child(const ClientSurroundings& surroundings, int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const pid_t inside = fork();
  if (inside < 0)
    return fail({.code = ErrorCode::kUnreadable,
                 .subject = fmt::format("pid {}", surroundings.point.pid()),
                 .what = "no process for its pid namespace",
                 .where = {},
                 .os_errno = errno,
                 .hint = {}});
  if (inside > 0) {
    ::close(socket);  // the broker learns of the client's end by it
    int status = 0;
    while (waitpid(inside, &status, 0) < 0 && errno == EINTR) continue;
    end_like(status);
  }
  return {};
}

// Returns true if the process is as it was.
bool run(const ClientTask& task, const ClientSurroundings& surroundings, const TargetProxy& target, int socket) {
  const auto refused = [&](const Error& error) {
    refuse(error);
    return !task.release;  // the process that was to be freed is not
  };
  const auto library = load(surroundings.point.driver());
  if (!library) return refused(library.error());
  if (const auto engine = load_debug_engine(surroundings.point, surroundings.machine); !engine)
    return refused(engine.error());
  if (auto entered = move_in(task, surroundings, socket); !entered) return refused(entered.error());
  if (surroundings.of_pids.is_open())
    if (auto inside = continue_in_child(surroundings, socket); !inside) return refused(inside.error());
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // again: a change of user ids clears it
  if (task.core >= 0) {
    const rlimit most{task.core_limit, task.core_limit};
    setrlimit(RLIMIT_FSIZE, &most);
  }

  // The parent may have ended before prctl() above.
  if (target.is_alone()) return false;
  const Pid own = getpid();
  report('c', {reinterpret_cast<const char*>(&own), sizeof own});

  static Watchdog watchdog(target, task.trace);
  auto driver = Driver::of(*library, surroundings.point.driver().path, watchdog.watch());
  if (!driver) return refused(driver.error());
  if (task.release) {
    const auto freed =
        release(target, *driver, task.died_in, task.dead_client, [](Phase phase) { watchdog.entered(phase); });
    if (!freed) refuse(freed.error());
    return freed.has_value();
  }
  const auto answer = sample(target, *driver, task, watchdog);
  if (answer) send(STDOUT_FILENO, 'a', pack(*answer));
  else refuse(answer.error());
  return true;
}

}  // namespace

void end_like(int status) {
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : kClientFailed);
}

void run_client(const ClientTask& task, const ClientSurroundings& surroundings, int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  static const TargetProxy target(socket);
  const bool as_before = run(task, surroundings, target, socket);
  _exit(as_before ? kClientDone : kClientFailed);  // the driver's threads and destructors are of no use any more
}

}  // namespace rankstacks::gpu
