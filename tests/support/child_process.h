// A process that belongs to the test: runs `body` in a forked child, which reports through a pipe that it is where it
// should be.
#pragma once

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <functional>

namespace rankstacks::testing {

class ChildProcess {
 public:
  // `body` gets a function that reports "ready"; it must not return before the test is over (pause(), read()).
  explicit ChildProcess(const std::function<void(const std::function<void()>& ready)>& body) {
    int fds[2];
    if (pipe(fds) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(fds[0]);
      const auto ready = [fd = fds[1]] { (void)!write(fd, "r", 1); };
      body(ready);
      _exit(0);
    }
    close(fds[1]);
    char c = 0;
    ready_ = read(fds[0], &c, 1) == 1;
    close(fds[0]);
  }
  ~ChildProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool ready() const { return ready_; }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

}  // namespace rankstacks::testing
