#include "cli/watch_command.h"

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace rankstacks::cli {

bool WatchCommandRunner::start(const std::vector<std::pair<std::string, std::string>>& variables) {
  if (command_.empty() || is_running()) return false;
  const pid_t child = fork();
  if (child < 0) return false;
  if (child > 0) {
    pid_ = child;
    return true;
  }
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  execl("/bin/sh", "sh", "-c", command_.c_str(), static_cast<char*>(nullptr));
  _exit(127);
}

bool WatchCommandRunner::is_running() {
  if (pid_ == 0) return false;
  const pid_t ended = waitpid(pid_, nullptr, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return true;
  pid_ = 0;
  return false;
}

void WatchCommandRunner::wait(const Deadline& deadline) {
  constexpr std::chrono::milliseconds kPause{20};
  while (is_running() && !deadline.passed())
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(kPause, deadline.left()));
}

}  // namespace rankstacks::cli
