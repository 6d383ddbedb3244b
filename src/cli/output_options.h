// What is shown, and where: the options of a report's form, and those that make it fit to be shown to others.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace rankstacks::cli {

// `options` must outlive it.
class OutputOptions {
 public:
  explicit OutputOptions(Options& options) : options_(options) {}
  // These are called for each command that has them, before the command line is parsed.
  void add_writing(CLI::App& command, const std::vector<std::string>& formats = {"text", "json"});
  // What makes a report fit to be shown to others (docs/redaction.md).
  void add_redaction(CLI::App& command);
  void add_max_bytes(CLI::App& command);
  void add_threads(CLI::App& command);
  void add_ranks(CLI::App& command);
  // After it was parsed: sets the values in the options. Throws CLI::ParseError for those that do not fit together.
  void take();

 private:
  void take_redaction();

  Options& options_;
  // As the user gives them.
  std::string format_ = "text", color_ = "auto", threads_;
  bool redact_ = false, no_redact_ = false;
};

}  // namespace rankstacks::cli
