// --samples, --interval and --max-wait: how often running processes are looked at.
#pragma once

#include "cli/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rankstacks::cli {

// Each command that has these options has an object of its own. `options` must outlive it.
class SamplingOptions {
 public:
  explicit SamplingOptions(Options& options);
  // Called once, before the command line is parsed.
  void add_to(CLI::App& command);
  // After it was parsed: sets the values in the options.
  void take();

 private:
  Options& options_;
  CLI::Option *samples_ = nullptr, *interval_ = nullptr;
  // As the user gives them, in seconds.
  double interval_seconds_, max_wait_seconds_;
};

}  // namespace rankstacks::cli
