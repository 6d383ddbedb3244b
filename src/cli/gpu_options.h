// --gpu and the options that belong to it: what is asked of the processes' GPUs.
#pragma once

#include <string>

#include "cli/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rankstacks::cli {

// `options` must outlive it.
class GpuOptions {
 public:
  explicit GpuOptions(Options& options) : options_(options) {}
  // Called for each command that has them, before the command line is parsed.
  void add_to(CLI::App& command);
  // Also those of GPU cores.
  void add_with_cores_to(CLI::App& command);
  // After it was parsed: sets the values in the options.
  void take();

 private:
  CLI::Option* add_sessions_to(CLI::App& command);

  Options& options_;
  std::string core_;
  int core_limit_ = 1024, limit_ = 5;  // MiB, seconds
};

}  // namespace rankstacks::cli
