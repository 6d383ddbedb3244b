#include "gpu/session_helper.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>

#include "gpu/attach_point.h"
#include "gpu/driver.h"
#include "gpu/session.h"
#include "gpu/session_answer.h"
#include "gpu/summarize.h"
#include "target/file_descriptor.h"
#include "target/proc.h"

namespace rankstacks::gpu {
namespace {

using Clock = std::chrono::steady_clock;

struct Order {
  bool release = false;                    // else: look
  Pid pid = 0;
  std::optional<std::string> core_path;
  std::uint64_t core_limit = 0;
  std::optional<Phase> died_in;            // release
  Pid client = 0;
};

template <class T>
bool number(std::string_view text, T& into) {
  const auto end = text.data() + text.size();
  return std::from_chars(text.data(), end, into).ptr == end && !text.empty();
}

std::optional<Order> parse(int argc, const char* const* argv) {
  Order order;
  if (argc < 4 || !number(argv[3], order.pid)) return std::nullopt;
  const std::string_view what = argv[2];
  if (what == "look") {
    if (argc == 4) return order;
    if (argc != 6 || !number(argv[5], order.core_limit)) return std::nullopt;
    order.core_path = argv[4];
    return order;
  }
  int phase = -1;
  if (what != "release" || argc != 6 || !number(argv[4], phase) || !number(argv[5], order.client)) return std::nullopt;
  order.release = true;
  if (phase >= 0 && phase <= static_cast<int>(Phase::kReleased)) order.died_in = static_cast<Phase>(phase);
  return order;
}

void tell(char kind, std::string_view text = "") { send(STDOUT_FILENO, kind, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}); }

// RANKSTACKS_GPU_TRACE=FILE: a line for each phase and each call into the driver, with its time.
class Trace {
 public:
  Trace() {
    if (const char* path = std::getenv("RANKSTACKS_GPU_TRACE")) fd_ = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }
  void add(std::string_view what, double ms) const {
    if (fd_ < 0) return;
    const std::string line = fmt::format("{} {} {:.3f} ms\n", getpid(), what, ms);
    (void)!write(fd_, line.data(), line.size());
  }

 private:
  int fd_ = -1;
};

// Counts the time of each call into the driver, on a thread of its own.
class Watchdog {
 public:
  explicit Watchdog(const Order& order) : order_(order) {
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
                  trace_.add(call_.load(), std::chrono::duration<double, std::milli>(Clock::now() - begun_).count());
                  set(nullptr, Clock::time_point::max());
                }};
  }
  void entered(Phase phase) {
    phase_ = phase;
    trace_.add(fmt::format("phase {}", static_cast<int>(phase)), std::chrono::duration<double, std::milli>(Clock::now() - started_).count());
    const char byte = static_cast<char>(phase);
    tell('p', {&byte, 1});
  }

 private:
  void set(const char* call, Clock::time_point until) {
    call_ = call;
    until_ = until.time_since_epoch().count();
  }

  void run() {
    while (true) {
      const timespec pause{0, 20'000'000};
      nanosleep(&pause, nullptr);
      if (Clock::now().time_since_epoch().count() >= until_ && call_ != nullptr) give_up();
    }
  }

  [[noreturn]] void give_up() {
    tell('h', call_.load());
    if (order_.release) _exit(3);          // freeing it hung as well: there is no more to be done
    const std::string pid = std::to_string(order_.pid), phase = std::to_string(static_cast<int>(phase_.load())), self = std::to_string(getpid());
    execl("/proc/self/exe", "rankstacks", kSessionHelperOption, "release", pid.c_str(), phase.c_str(), self.c_str(), static_cast<char*>(nullptr));
    _exit(3);                              // whoever started this frees the process
  }

  const Order order_;
  const Trace trace_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point begun_ = started_;
  std::atomic<const char*> call_ = nullptr;
  std::atomic<Clock::rep> until_ = Clock::time_point::max().time_since_epoch().count();
  std::atomic<Phase> phase_ = Phase::kNothing;
};

// One session with a process at a time: an abstract socket's name is free again when its owner ends, however it does.
bool is_only_session(Pid pid) {
  const auto stat = proc::stat_of(pid);
  const std::string name = fmt::format("rankstacks-gpu-{}-{}", pid, stat ? stat->start_ticks : 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  const int lock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);   // kept to the end
  return bind(lock, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0;
}

bool same_namespace(Pid pid, const char* kind) {
  struct stat ours{}, theirs{};
  return stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &ours) != 0 || stat(fmt::format("/proc/{}/ns/{}", pid, kind).c_str(), &theirs) != 0 || ours.st_ino == theirs.st_ino;
}

// The last number of NSpid: the pid that the process itself sees.
Pid innermost_pid(Pid pid) {
  const auto status = proc::read_file(fmt::format("/proc/{}/status", pid));
  if (!status) return pid;
  const auto at = status->find("\nNSpid:");
  if (at == std::string::npos) return pid;
  const auto line = std::string_view(*status).substr(at + 1, status->find('\n', at + 1) - at - 1);
  Pid inner = pid;
  const auto last = line.find_last_of("\t ");
  if (last != std::string_view::npos) number(line.substr(last + 1), inner);
  return inner;
}

// The driver finds its client by pid, by sockets and by paths: as the target sees them. Goes on in a child, as a process keeps its own pid.
Result<void> enter_namespaces(Pid& pid) {
  static constexpr std::array kKinds{"net", "pid", "mnt"};
  std::vector<FileDescriptor> namespaces;
  for (const char* kind : kKinds) {
    if (same_namespace(pid, kind)) continue;
    FileDescriptor& fd = namespaces.emplace_back(::open(fmt::format("/proc/{}/ns/{}", pid, kind).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.is_open()) return fail({.code = ErrorCode::kPermission, .subject = fmt::format("pid {}", pid), .what = fmt::format("its {} namespace cannot be opened", kind), .where = {}, .os_errno = errno,
                                    .hint = "run rankstacks as root of the machine, or inside of the container"});
  }
  if (namespaces.empty()) return {};
  const Pid inner = innermost_pid(pid);
  for (const FileDescriptor& fd : namespaces)
    if (setns(fd.get(), 0) != 0) return fail({.code = ErrorCode::kPermission, .subject = fmt::format("pid {}", pid), .what = "its namespaces cannot be entered", .where = {}, .os_errno = errno,
                                              .hint = "run rankstacks as root of the machine, or inside of the container"});
  const pid_t child = fork();
  if (child < 0) return fail({.code = ErrorCode::kUnreadable, .subject = fmt::format("pid {}", pid), .what = "no process for its namespace", .where = {}, .os_errno = errno, .hint = {}});
  if (child > 0) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFSIGNALED(status)) {
      signal(WTERMSIG(status), SIG_DFL);
      raise(WTERMSIG(status));
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  }
  pid = inner;
  return {};
}

Result<SessionAnswer> look(const AttachPoint& point, const Driver& driver, const Order& order, Watchdog& watchdog) {
  const auto admission = admission_to(point);
  if (!admission) return fail(admission.error());
  if (admission->refusal) return fail(*admission->refusal);
  const PhaseObserver entered = [&](Phase phase) { watchdog.entered(phase); };
  std::vector<Problem> problems;
  if (admission->left_by) {
    const auto freed = release(point, driver, std::nullopt, *admission->left_by, entered);
    problems.push_back({fmt::format("an earlier GPU session (pid {}) had ended without detaching; {}", *admission->left_by, freed ? "the process was freed from it" : freed.error().message()), std::nullopt});
  }
  auto session = run_session(point, driver, {.core_path = order.core_path, .core_limit = order.core_limit}, entered);
  if (!session) return fail(session.error());
  SessionAnswer answer{.driver = session->driver, .thread_held_ms = session->thread_held_ms, .attach_ms = session->attach_ms, .core_bytes = session->core_bytes, .problems = std::move(problems)};
  answer.problems.insert(answer.problems.end(), session->problems.begin(), session->problems.end());
  FrameTable frames;
  for (const LookedAtDevice& device : session->devices) {
    GpuSnapshot gpu = summarize(device.state, frames, &answer.problems);
    if (gpu.execution) gpu.execution->held_ms = device.held_ms;
    answer.gpus.push_back(std::move(gpu));
  }
  for (std::size_t i = 0; i < frames.size(); ++i) answer.frames.push_back(frames[static_cast<FrameId>(i)]);
  return answer;
}

void refuse(const Error& error) { send(STDOUT_FILENO, 'e', pack(error)); }

// True: the process is as it was.
bool run(Order& order) {
  // The file is the tool's side's, also where the driver writes it from inside of the target's namespaces.
  FileDescriptor core;
  if (order.core_path && !same_namespace(order.pid, "mnt")) {
    core = FileDescriptor(::open(order.core_path->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!core.is_open()) {
      refuse({.code = ErrorCode::kPermission, .subject = *order.core_path, .what = "cannot be written", .where = {}, .os_errno = errno, .hint = {}});
      return true;
    }
    order.core_path = fmt::format("/proc/self/fd/{}", core.get());
  }
  if (auto done = enter_namespaces(order.pid); !done) {
    refuse(done.error());
    return true;
  }
  if (!order.release && !is_only_session(order.pid)) {
    refuse({.code = ErrorCode::kPermission, .subject = fmt::format("pid {}", order.pid), .what = "another rankstacks looks at its GPUs at this moment", .where = {}, .os_errno = 0, .hint = "try again in a few seconds"});
    return true;
  }
  static Watchdog watchdog(order);
  const auto point = AttachPoint::find(order.pid);
  if (!point) {
    refuse(point.error());
    return true;
  }
  auto driver = Driver::open(point->library(), watchdog.watch());
  if (!driver) {
    refuse(driver.error());
    return true;
  }
  if (order.release) {
    const auto freed = release(*point, *driver, order.died_in, order.client, [](Phase phase) { watchdog.entered(phase); });
    if (!freed) refuse(freed.error());
    return freed.has_value();
  }
  const auto answer = look(*point, *driver, order, watchdog);
  if (answer) send(STDOUT_FILENO, 'a', pack(*answer));
  else refuse(answer.error());
  return true;
}

// A machine that is short of memory kills others first: a client of the driver that vanishes can take the process with it. Needs
// CAP_SYS_RESOURCE (proc(5), oom_score_adj); -1000 would exempt it altogether.
void be_spared_of_oom() {
  const FileDescriptor file(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file.get() >= 0) (void)!::write(file.get(), "-999", 4);
}

}  // namespace

void run_session_helper_if_asked(int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]) != kSessionHelperOption) return;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGQUIT, SIGTSTP}) std::signal(signal, SIG_IGN);
  setsid();
  be_spared_of_oom();
  auto order = parse(argc, argv);
  if (!order) _exit(2);
  if (run(*order)) tell('d');
  _exit(0);                                // the driver's threads and destructors are of no use any more
}

}  // namespace rankstacks::gpu
