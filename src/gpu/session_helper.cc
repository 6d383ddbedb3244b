#include "gpu/session_helper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "gpu/attach_point.h"
#include "gpu/session_answer.h"
#include "gpu/session_client.h"
#include "gpu/session_requests.h"
#include "target/proc.h"
#include "target/process_id.h"

namespace rankstacks::gpu {
namespace {

using Clock = std::chrono::steady_clock;

// How long a killed client may take to end: one that hangs in the kernel's driver does not end.
constexpr std::chrono::seconds kEndLimit{5};
// A helper that the tool has left ends at the latest after this. Each call into the driver has its own limit.
constexpr unsigned kLastLimit = 900, kLastLimitWithCore = 7200;  // s

struct Order {
  target::ProcessId process;
  std::optional<std::string> core_path;
  ClientTask task;
};

template <class T>
bool number(std::string_view text, T& into) {
  const auto end = text.data() + text.size();
  return std::from_chars(text.data(), end, into).ptr == end && !text.empty();
}

std::optional<Order> parse(int argc, const char* const* argv) {
  Order order;
  if (argc < 6 || !number(argv[3], order.process.pid) || order.process.pid <= 0 ||
      !number(argv[4], order.process.start_ticks))
    return std::nullopt;
  const std::string_view what = argv[2], traced = argv[5];
  if (traced != "0" && traced != "1") return std::nullopt;
  if (traced == "1") order.task.trace = kTraceDescriptor;
  if (what == "sample") {
    if (argc == 6) return order;
    if (argc != 8 || !number(argv[7], order.task.core_limit)) return std::nullopt;
    order.core_path = argv[6];
    return order;
  }
  int phase = -1;
  if (what != "release" || argc != 8 || !number(argv[6], phase) || !number(argv[7], order.task.dead_client))
    return std::nullopt;
  order.task.release = true;
  if (phase >= 0 && phase <= static_cast<int>(Phase::kReleased)) order.task.died_in = static_cast<Phase>(phase);
  return order;
}

void refuse(const Error& error) { send(STDOUT_FILENO, 'e', pack(error)); }
void send_done() { send(STDOUT_FILENO, 'd', {}); }

Error failed(const Order& order, ErrorCode code, std::string what, int os_errno, std::string hint = "") {
  return {.code = code,
          .subject = fmt::format("pid {}", order.process.pid),
          .what = std::move(what),
          .where = {},
          .os_errno = os_errno,
          .hint = std::move(hint)};
}

struct Namespaces {
  FileDescriptor of_pids;  // not open: the tool's own
  std::vector<FileDescriptor> others;
};

// Those namespaces of the process that are not the tool's own.
Result<Namespaces> open_namespaces(const Order& order) {
  Namespaces namespaces;
  for (const std::string_view kind : {"net", "mnt", "pid"}) {
    const std::string path = fmt::format("/proc/{}/ns/{}", order.process.pid, kind);
    if (target::proc::read_link(path) == target::proc::read_link(fmt::format("/proc/self/ns/{}", kind))) continue;
    FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.is_open())
      return fail(failed(order, ErrorCode::kPermission, fmt::format("its {} namespace cannot be opened", kind), errno,
                         "run rankstacks as root of the machine, or inside of the container"));
    if (kind == "pid") namespaces.of_pids = std::move(fd);
    else namespaces.others.push_back(std::move(fd));
  }
  return namespaces;
}

// Copies the core that the client has written into the memory file to the path that was asked for.
Result<void> keep_core(const Order& order) {
  struct stat written {};
  if (fstat(order.task.core, &written) != 0 || static_cast<std::uint64_t>(written.st_size) > order.task.core_limit)
    return fail({.code = ErrorCode::kLimit,
                 .subject = *order.core_path,
                 .what = "the GPU core is larger than allowed, and was not kept",
                 .where = {},
                 .os_errno = 0,
                 .hint = "--gpu-core-limit"});
  const auto cannot = [&](int code) {
    return fail({.code = ErrorCode::kPermission,
                 .subject = *order.core_path,
                 .what = "cannot be written",
                 .where = {},
                 .os_errno = code,
                 .hint = {}});
  };
  const FileDescriptor file(
      ::open(order.core_path->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat there {};
  if (!file.is_open() || fstat(file.get(), &there) != 0) return cannot(errno);
  if (!S_ISREG(there.st_mode) || ftruncate(file.get(), 0) != 0) return cannot(EINVAL);
  std::vector<char> piece(1u << 20);
  for (off_t at = 0; at < written.st_size;) {
    const ssize_t n = pread(order.task.core, piece.data(),
                            std::min<std::size_t>(piece.size(), static_cast<std::size_t>(written.st_size - at)), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot(errno);
    if (n == 0) break;  // it became shorter meanwhile
    for (ssize_t done = 0; done < n;) {
      const ssize_t put = write(file.get(), piece.data() + done, static_cast<std::size_t>(n - done));
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return cannot(errno);
      done += put;
    }
    at += n;
  }
  return {};
}

// Status of a client that was asked to end; std::nullopt if it does not end.
std::optional<int> end_of(pid_t client, bool killed) {
  for (const auto until = Clock::now() + kEndLimit;;) {
    int status = 0;
    const pid_t got = waitpid(client, &status, killed ? WNOHANG : 0);
    if (got == client) return status;
    if (got < 0 && errno != EINTR) return std::nullopt;
    if (killed && Clock::now() > until) return std::nullopt;
    const timespec pause{0, 2'000'000};
    if (got == 0) nanosleep(&pause, nullptr);
  }
}

struct ClientOutcome {
  std::optional<Phase> hung;
  std::optional<int> status;  // of its end; std::nullopt: it does not end
};

Result<ClientOutcome> hold(const Order& order, const ClientSurroundings& surroundings) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(failed(order, ErrorCode::kUnreadable, "no socket for its session", errno));
  FileDescriptor own(ends[0]), clients(ends[1]);
  const pid_t client = fork();
  if (client < 0) return fail(failed(order, ErrorCode::kUnreadable, "no process for its session", errno));
  if (client == 0) {
    own = FileDescriptor();
    run_client(order.task, surroundings, clients.get());
  }
  clients = FileDescriptor();
  const auto keep = [&]() -> Result<void> {
    if (order.task.core < 0 || !order.core_path)
      return fail(failed(order, ErrorCode::kMalformed, "no GPU core was asked for", 0));
    return keep_core(order);
  };
  const auto asked = [] {
    const auto phase = static_cast<std::uint8_t>(Phase::kTriggered);
    send(STDOUT_FILENO, 'p', {&phase, 1});
  };
  const ClientEnd end = serve(own.get(), surroundings.point, {keep, asked});
  if (end.hung) kill(client, SIGKILL);
  return ClientOutcome{end.hung, end_of(client, end.hung.has_value())};
}

// Returns true if the process is as it was.
bool run(Order& order, const Machine& machine) {
  const auto refused = [&](const Error& error) {
    refuse(error);
    return !order.task.release;  // the process that was to be freed is not
  };
  const auto point = AttachPoint::find(order.process, machine);
  if (!point) return refused(point.error());
  if (!order.task.release) {
    if (!point->lock())
      return refused(failed(order, ErrorCode::kPermission, "another rankstacks looks at its GPUs at this moment", 0,
                            "try again in a few seconds"));
    const auto admission = admission_to(*point);
    if (!admission) return refused(admission.error());
    if (admission->refusal) return refused(*admission->refusal);
    order.task.left_by = admission->left_by;
  }
  const auto rights = target::rights_of(order.process.pid);
  if (!rights) return refused(rights.error());
  auto namespaces = open_namespaces(order);
  if (!namespaces) return refused(namespaces.error());
  FileDescriptor core;
  if (order.core_path) {
    core = FileDescriptor(static_cast<int>(syscall(SYS_memfd_create, "rankstacks GPU core", MFD_CLOEXEC)));
    if (!core.is_open())
      return refused(failed(order, ErrorCode::kUnreadable, "no memory file for its GPU core", errno));
    order.task.core = core.get();
  }
  const FileDescriptor root(
      ::open(fmt::format("/proc/{}/root", order.process.pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.is_open())
    return refused(failed(order, ErrorCode::kPermission, "its root directory cannot be opened", errno,
                          "run rankstacks as root of the machine, or inside of the container"));
  // All of it must belong to one process with one program: neither to a setuid program that it has executed meanwhile,
  // nor to another process that got its number.
  const auto again = target::rights_of(order.process.pid);
  if (!again || !again->are_the_same(*rights) || !point->is_still_mapped())
    return refused(failed(order, ErrorCode::kGone, "it runs another program by now, or has ended", 0, "look again"));
  const ClientSurroundings surroundings{.point = *point,
                                        .machine = machine,
                                        .rights = *rights,
                                        .namespaces = std::move(namespaces->others),
                                        .of_pids = namespaces->of_pids,
                                        .root = root};
  auto held = hold(order, surroundings);
  if (held && held->hung && !order.task.release) {
    // The process's memory holds the number of the client that it waits for, as the process knows it.
    const auto client = point->read(Word::kApiClientPid);
    order.task = {.release = true,
                  .died_in = held->hung,
                  .dead_client = client && *client ? static_cast<Pid>(**client) : 0,
                  .trace = order.task.trace};
    held = hold(order, surroundings);
  }
  if (!held) return refused(held.error());
  if (held->hung || !held->status) return false;
  // The tool learns of this from how this process ends, and frees the target process.
  if (WIFSIGNALED(*held->status)) end_like(*held->status);
  return WIFEXITED(*held->status) && WEXITSTATUS(*held->status) == kClientDone;
}

// Makes a machine that is short of memory kill other processes first: a client of the driver that vanishes can take the
// target process down with it. Needs CAP_SYS_RESOURCE (proc(5), oom_score_adj); -1000 would exempt it altogether. The
// client inherits the value.
void be_spared_of_oom() {
  const FileDescriptor file(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file.get() >= 0) (void)!::write(file.get(), "-999", 4);
}

}  // namespace

void run_session_helper_if_asked(int argc, const char* const* argv, const Machine& machine) {
  if (argc < 2 || std::string_view(argv[1]) != kSessionHelperOption) return;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGQUIT, SIGTSTP, SIGXFSZ}) std::signal(signal, SIG_IGN);
  setsid();
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  prctl(PR_SET_NAME, "rankstacks");  // else it is the number of the descriptor that was executed
  umask(077);
  clearenv();
  be_spared_of_oom();
  auto order = parse(argc, argv);
  if (!order) _exit(2);
  std::signal(SIGALRM, SIG_DFL);
  alarm(order->core_path ? kLastLimitWithCore : kLastLimit);
  if (!run(*order, machine)) _exit(kClientFailed);
  send_done();
  _exit(0);
}

}  // namespace rankstacks::gpu
