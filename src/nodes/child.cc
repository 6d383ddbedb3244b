#include "nodes/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
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

// Between fork and exec: async-signal-safe calls alone. Returns the errno of what has failed.
int become(char* const* words, int in, int out, int err) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // also if the tool is killed
  if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) return errno;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);  // the tool ignores it
  std::signal(SIGXFSZ, SIG_DFL);
  execvp(words[0], words);
  return errno;
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
  child.pid_ = fork();
  if (child.pid_ < 0) return failed(errno);
  if (child.pid_ == 0) {
    const int error = become(words.data(), in->read.get(), out->write.get(), err->write.get());
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
