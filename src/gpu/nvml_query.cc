#include "gpu/nvml_query.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "gpu/nvml_helper.h"

namespace rankstacks::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Minimum wait in collect(), even if the timeout has passed by then: the answer is already in the pipe, or the helper
// is still writing it, as the pipe was full.
constexpr milliseconds kLeastWait{200};

bool exists(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0;
}

// Starts the helper. It writes its answer to `out`, and has no access to the terminal. Its environment is empty,
// because no variable of the tool's environment should affect the driver's library. Returns 0 or an errno.
int spawn_helper(const NvmlRequest& request, int out, int& pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // The helper does not inherit the signals that this process blocks or ignores.
  sigset_t none, ignored;
  sigemptyset(&none);
  sigemptyset(&ignored);
  for (const int signal : {SIGPIPE, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGCHLD}) sigaddset(&ignored, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<const char*> arguments{"rankstacks"};
  if (request.machine.is_played())
    arguments.insert(arguments.end(), {kTestMachineOption, request.machine.directory.c_str()});
  arguments.insert(arguments.end(), {kNvmlHelperOption, nullptr});
  char* const no_environment[] = {nullptr};
  const int error = ::posix_spawn(&pid, request.helper.c_str(), &files, &attributes,
                                  const_cast<char* const*>(arguments.data()), no_environment);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

}  // namespace

bool NvmlRequest::has_driver() const { return exists(machine.devices() + "/nvidiactl") || exists(machine.driver()); }

NvmlQuery::NvmlQuery(const NvmlRequest& request)
    : timeout_(request.timeout), started_(Clock::now()), has_driver_(request.has_driver()) {
  if (!has_driver_) return;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    not_started_ = errno;
    return;
  }
  answer_ = FileDescriptor(ends[0]);
  const FileDescriptor out(ends[1]);
  not_started_ = spawn_helper(request, out.get(), pid_);
  if (not_started_ != 0) pid_ = 0;
}

NvmlQuery::~NvmlQuery() { end_helper(); }

NvmlAnswer NvmlQuery::collect() {
  if (!has_driver_) return {};
  if (pid_ == 0)
    return {
        .outcome = NvmlOutcome::kSilent,
        .problems = {{fmt::format("NVML: the process that asks it cannot be started: {}", std::strerror(not_started_)),
                      "ulimit -u; free -m"}}};
  const auto deadline = std::max(started_ + timeout_, Clock::now() + kLeastWait);
  NvmlMessages messages;
  MessageReader reader(kMaxNvmlMessage);
  std::uint8_t buffer[1 << 16];
  std::size_t arrived = 0;
  bool ended = false;
  while (!ended && !messages.whole && arrived < kMaxNvmlBytes) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left <= milliseconds::zero()) break;
    pollfd one{answer_.get(), POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t n = ::read(answer_.get(), buffer, sizeof buffer);
    if (n > 0) {
      arrived += static_cast<std::size_t>(n);
      reader.add({buffer, static_cast<std::size_t>(n)});
      while (const auto message = reader.next()) messages.add(*message);
    }
    ended = n == 0 || (n < 0 && errno != EINTR) || reader.is_broken();
  }
  end_helper();
  const bool crashed = ended && !messages.whole;
  NvmlAnswer answer =
      answer_of(std::move(messages), timeout_.count() % 1000 == 0 ? fmt::format("{} s", timeout_.count() / 1000)
                                                                  : fmt::format("{} ms", timeout_.count()));
  if (crashed) {
    // The helper is not slow: it has ended, because the library crashed, or because of a resource limit.
    answer.problems = {{"NVML: the process that asks it ended without a whole answer",
                        "nvidia-smi, which asks the same, may show more"}};
  }
  return answer;
}

// Waits for a short time only: a process that hangs in the driver cannot be killed, and is left to init.
void NvmlQuery::end_helper() {
  if (pid_ == 0) return;
  answer_ = FileDescriptor();
  ::kill(pid_, SIGKILL);
  for (int tries = 0; tries < 50; ++tries) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) break;
    ::poll(nullptr, 0, 1);
  }
  pid_ = 0;
}

}  // namespace rankstacks::gpu
