// --pids and --job: which running processes a command looks at.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rankstacks::cli {

// Each command that has these options has an object of its own. `options` must outlive it.
class ProcessOptions {
 public:
  explicit ProcessOptions(Options& options) : options_(options) {}
  // Called once, before the command line is parsed. `text` describes --pids.
  void add_to(CLI::App& command, const char* text);

  // The others are called after it was parsed. They throw CLI::ParseError for values that are none.
  bool given() const;
  // Sets the processes or the job in the options, if any are given.
  void take();
  // The same, but one of both has to be given. `needed` is the message, less "is required".
  void take_required(const char* needed);
  // --pids and --job take the words that follow them. Those that are the names of files are cores, and become paths.
  void take_with_cores();

 private:
  void take_job();

  Options& options_;
  CLI::Option *pids_ = nullptr, *job_ = nullptr;
  std::vector<std::string> pid_words_;
  std::string job_name_;
};

}  // namespace rankstacks::cli
