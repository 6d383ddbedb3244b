#include "doctor/trial.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>

#include "target/proc.h"

namespace rankstacks::doctor {
namespace {

constexpr Pid kNobody = INT_MAX;  // pids end at 2^22: Linux include/linux/threads.h, PID_MAX_LIMIT

int seize(Pid pid) { return ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0 ? 0 : errno; }

int read_byte(Pid pid, const void* address) {
  char byte = 0;
  iovec local{&byte, 1}, remote{const_cast<void*>(address), 1};
  return process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
}

// Runs `body` in a child process, which writes its answers, one int each, to the descriptor that it is given. Returns
// the answers that came, and the child's wait status; std::nullopt if there could be no child (errno). The child has
// been waited for: whatever it traced is released.
struct Answers {
  int values[8] = {};
  std::size_t count = 0;
  int status = 0;
};
std::optional<Answers> ask_child(const std::function<void(int)>& body) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    close(fds[0]);
    body(fds[1]);
    _exit(0);
  }
  const int saved = errno;
  close(fds[1]);
  Answers answers;
  if (child > 0) {
    auto* into = reinterpret_cast<char*>(answers.values);
    std::size_t used = 0;
    while (used < sizeof answers.values) {
      const ssize_t n = read(fds[0], into + used, sizeof answers.values - used);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      used += static_cast<std::size_t>(n);
    }
    answers.count = used / sizeof(int);
    while (waitpid(child, &answers.status, 0) < 0 && errno == EINTR) {}
  }
  close(fds[0]);
  errno = saved;
  return child > 0 ? std::optional(answers) : std::nullopt;
}

void answer(int fd, int value) { (void)!write(fd, &value, sizeof value); }

}  // namespace

bool Trial::filtered() const {
  return not_run.empty() && killed_by == 0 && (seize_nobody != ESRCH || read_nobody != ESRCH);
}

Trial try_attach_to_sibling() {
  Trial trial;
  static const char kByte = 1;  // at the same address in every forked process
  const auto maps_text = target::proc::read_file("/proc/self/maps");
  const auto maps = maps_text ? target::proc::parse_maps(*maps_text) : std::vector<target::Mapping>{};
  const pid_t self = getpid();

  const pid_t sibling = fork();
  if (sibling < 0) {
    trial.not_run = fmt::format("fork: {}", std::strerror(errno));
    return trial;
  }
  if (sibling == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == self) pause();
    _exit(0);
  }
  const auto answers = ask_child([&](int fd) {
    answer(fd, seize(kNobody));
    answer(fd, read_byte(kNobody, &kByte));
    int opened = ENOENT;
    for (const target::Mapping& m : maps) {
      if (m.inode == 0) continue;
      char path[128];
      std::snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", sibling,
                    static_cast<unsigned long long>(m.range.start), static_cast<unsigned long long>(m.range.end));
      opened = open(path, O_RDONLY | O_CLOEXEC) >= 0 ? 0 : errno;
      break;
    }
    answer(fd, opened);
    answer(fd, read_byte(sibling, &kByte));
    answer(fd, seize(sibling));
  });
  if (!answers) trial.not_run = fmt::format("fork: {}", std::strerror(errno));
  kill(sibling, SIGKILL);
  while (waitpid(sibling, nullptr, 0) < 0 && errno == EINTR) {}
  if (!answers) return trial;
  int* const into[] = {&trial.seize_nobody, &trial.read_nobody, &trial.map_files, &trial.read, &trial.seize};
  for (std::size_t i = 0; i < std::size(into) && i < answers->count; ++i) *into[i] = answers->values[i];
  if (WIFSIGNALED(answers->status)) trial.killed_by = WTERMSIG(answers->status);
  return trial;
}

int try_to_seize(Tid tid) {
  // PTRACE_DETACH needs a stopped tracee, and this one shall not be stopped: the end of its tracer releases it as well.
  const auto answers = ask_child([&](int fd) { answer(fd, seize(tid)); });
  if (!answers) return errno;
  return answers->count == 1 ? answers->values[0] : EPERM;
}

}  // namespace rankstacks::doctor
