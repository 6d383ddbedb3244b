// How the processes and cores are read: which files, how long, with how much memory, and by which rules.
#pragma once

#include <string>

#include "cli/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace rankstacks::cli {

// `options` must outlive it.
class ReadingOptions {
 public:
  explicit ReadingOptions(Options& options);
  // These are called for each command that has them, before the command line is parsed.
  void add_files(CLI::App& command);
  void add_rules(CLI::App& command);
  void add_memory(CLI::App& command);
  void add_timeout(CLI::App& command);
  void add_timeout(CLI::App& command, const std::string& text);
  // Flight Recorder, frames, and --timeout.
  void add_reading(CLI::App& command);
  // After it was parsed: sets the values in the options. Throws CLI::ParseError for values that are not possible.
  void take(bool may_ask_flight_recorders);

 private:
  void take_flight_recorder(bool may_ask);
  void take_debuginfod();

  Options& options_;
  // As the user gives them; times in seconds.
  std::string unwinder_ = "auto", memory_;
  bool debuginfod_ = false, no_inlines_ = false;
  double debuginfod_time_ = 30, timeout_;
};

}  // namespace rankstacks::cli
