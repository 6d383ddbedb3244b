#include "nodes/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

namespace rankstacks::nodes {
namespace {

struct Pipe {
  FileDescriptor read, write;
};

std::optional<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void set_non_blocking(const FileDescriptor& file) {
  fcntl(file.get(), F_SETFL, fcntl(file.get(), F_GETFL) | O_NONBLOCK);
}

// Between fork and exec, and in the guard, async-signal-safe calls alone. Returns the errno of what has failed.
int become(char* const* words, int in, int out, int err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) return errno;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGTERM}) std::signal(signal, SIG_DFL);  // the tool ignores some
  execvp(words[0], words);
  return errno;
}

// A pipe of another child that stayed open here would keep that child from the end of its input.
void close_everything() {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, 0u, ~0u, 0u) == 0) return;
#endif
  constexpr int kMax = 65536;
  rlimit limit{};
  const int open =
      getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kMax ? static_cast<int>(limit.rlim_cur) : kMax;
  for (int file = 0; file < open; ++file) close(file);
}

// Ends the children of this process, and theirs, which become its own when their parent is gone; it has to be a
// subreaper (PR_SET_CHILD_SUBREAPER). clush starts each ssh in a session of its own, so a signal to a group does not
// reach them. Podman's are what runs in the container: it removes its copy of the tool if it is asked to end.
void end_orphans() {
  constexpr timespec kPause{0, 10'000'000};
  constexpr int kRounds = 350, kAsked = 150, kAskedAgain = 20;
  for (int round = 0; round < kRounds; ++round) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {}
    // proc(5): the pids, each with a blank behind it. A child that is not reaped keeps its number.
    const int list = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    char text[4096];
    const ssize_t size = list < 0 ? 0 : read(list, text, sizeof text);
    if (list >= 0) close(list);
    if (size <= 0) return;
    pid_t pid = 0;
    for (ssize_t i = 0; i < size; ++i) {
      if (text[i] >= '0' && text[i] <= '9') pid = pid * 10 + (text[i] - '0');
      else if (const pid_t whole = std::exchange(pid, 0); whole > 0 && (round >= kAsked || round % kAskedAgain == 0))
        kill(whole, round < kAsked ? SIGTERM : SIGKILL);
    }
    nanosleep(&kPause, nullptr);
  }
}

// The first process of the group: waits for the command, and if it is asked to end, or the tool has died in whatever
// way, ends all of the group. Engines such as clush leave the ssh that they have started behind when they are killed.
[[noreturn]] void guard(pid_t command, pid_t tool, const sigset_t& awaited) {
  close_everything();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  bool ends = getppid() != tool;  // it had died before the call above
  int status = 0;
  constexpr timespec kPause{0, 10'000'000}, kLong{3600, 0};
  for (int left = 100; waitpid(command, &status, WNOHANG) != command;) {
    if (!ends) {
      ends = sigtimedwait(&awaited, nullptr, &kLong) == SIGTERM;
      continue;
    }
    if (left == 100) kill(0, SIGTERM);  // here it is blocked
    if (left-- == 0) kill(command, SIGKILL);
    nanosleep(&kPause, nullptr);
  }
  if (ends) end_orphans();
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

Result<Child> Child::start(const std::vector<std::string>& command, bool with_input) {
  const auto failed = [&](int error) {
    return fail({.code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnreadable,
                 .subject = command.front(),
                 .what = "cannot be started",
                 .os_errno = error});
  };
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  auto out = make_pipe(), err = make_pipe(), failure = make_pipe();
  auto in = with_input ? make_pipe() : Pipe{FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)), {}};
  if (!out || !err || !failure || !in || !in->read.is_open()) return failed(errno);
  Child child;
  const pid_t tool = getpid();
  if (std::signal(SIGCHLD, SIG_DFL) == SIG_ERR) return failed(errno);  // a caller may have ignored it for its children
  child.pid_ = fork();
  if (child.pid_ < 0) return failed(errno);
  if (child.pid_ == 0) {
    setsid();
    std::signal(SIGCHLD, SIG_DFL);
    sigset_t awaited;
    sigemptyset(&awaited);
    for (const int signal : {SIGCHLD, SIGTERM}) sigaddset(&awaited, signal);
    sigprocmask(SIG_SETMASK, &awaited, nullptr);
    const pid_t command_pid = fork();
    if (command_pid > 0) guard(command_pid, tool, awaited);
    const int error =
        command_pid < 0 ? errno : become(words.data(), in->read.get(), out->write.get(), err->write.get());
    [[maybe_unused]] const ssize_t n = write(failure->write.get(), &error, sizeof error);
    _exit(127);
  }
  failure->write.close();
  int error = 0;
  ssize_t n = 0;
  while ((n = read(failure->read.get(), &error, sizeof error)) < 0 && errno == EINTR) {}
  if (n > 0) return failed(error);
  child.out = std::move(out->read);
  child.err = std::move(err->read);
  child.in = std::move(in->write);
  for (const FileDescriptor* file : {&child.out, &child.err, &child.in})
    if (file->is_open()) set_non_blocking(*file);
  return child;
}

Child::Child(Child&& other) noexcept
    : out(std::move(other.out)),
      err(std::move(other.err)),
      in(std::move(other.in)),
      pid_(std::exchange(other.pid_, -1)),
      status_(other.status_) {}

Child::~Child() {
  if (pid_ <= 0) return;
  send(
      SIGKILL);  // also what is left of the group if the child itself has ended: its number is not free before the wait
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
}

std::optional<int> Child::ended() {
  siginfo_t info{};
  if (status_ || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return status_;
  // As wait(2) would state it: the exit status, or 128 and the signal, as shells do.
  if (info.si_pid == pid_) status_ = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  return status_;
}

void Child::send(int signal) const {
  if (pid_ > 0) kill(-pid_, signal);
}

}  // namespace rankstacks::nodes
