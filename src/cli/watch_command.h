// The command of --exec, which runs at the same time as the watch.
#pragma once

#include <sys/types.h>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"

namespace rankstacks::cli {

// Runs one command at a time, by the shell, in a process group of its own. What it prints goes to stderr.
class WatchCommandRunner {
 public:
  explicit WatchCommandRunner(std::string command) : command_(std::move(command)) {}

  // Adds `variables` to its environment. False: there is no command, the one before still runs, or it cannot be
  // started.
  bool start(const std::vector<std::pair<std::string, std::string>>& variables);
  // Reaps it if it has ended. Returns whether one still runs.
  bool is_running();
  // Waits for its end, no longer than to the deadline. It is not killed.
  void wait(const Deadline& deadline);

 private:
  std::string command_;
  pid_t pid_ = 0;
};

}  // namespace rankstacks::cli
