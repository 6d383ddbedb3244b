// The command line of `rankstacks core-handler`, which the kernel writes: core(5).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/types.h"
#include "cli/kept_cores.h"

namespace CLI {
class App;
}

namespace rankstacks::cli {

struct CoreHandlerOptions {
  Pid pid = 0;         // %P
  unsigned user = 0;   // %u
  unsigned group = 0;  // %g
  int signal = 0;      // %s
  long time = 0;       // %t: seconds
  std::string host;    // %h
  std::string directory;
  bool full = false;   // also the full core
  bool plain = false;  // not packed
  std::chrono::steady_clock::duration within = std::chrono::seconds(60);
  std::uint64_t max_bytes = 0;  // of the full core; 0: any
  KeepLimits keep;
};

class CoreHandlerCommand {
 public:
  // Called once, before the command line is parsed.
  void add_to(CLI::App& command);
  // After it was parsed.
  CoreHandlerOptions take();

 private:
  CoreHandlerOptions options_;
  std::string max_bytes_, keep_bytes_, keep_free_;
  double within_ = 60;
};

}  // namespace rankstacks::cli
