// The command line of `rankstacks watch`.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace rankstacks::cli {

struct WatchOptions {
  std::string directory;  // --on-hang
  std::string command;    // --exec, for the shell; empty: none
  std::chrono::steady_clock::duration period = std::chrono::seconds(5);
  std::optional<std::chrono::seconds> job_timeout;  // --job-timeout; none: what the ranks' environment or defaults say
  std::chrono::steady_clock::duration grace = std::chrono::seconds(10);  // for the last look, after SIGTERM
  std::size_t keep = 8;                                                  // events
  bool captures = false;                                                 // --capture: also small cores
  std::uint64_t max_bytes = 256u << 20;                                  // of all reports in the directory
};

class WatchCommand {
 public:
  // Called once, before the command line is parsed. The processes are described by the options of all commands.
  void add_to(CLI::App& command);
  // After it was parsed.
  WatchOptions take();

 private:
  CLI::App* command_ = nullptr;
  WatchOptions options_;
  std::string max_bytes_ = "256M";
  double period_ = 5, grace_ = 10, job_timeout_ = 0;
};

}  // namespace rankstacks::cli
