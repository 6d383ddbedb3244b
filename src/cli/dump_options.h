// The command line of `rankstacks dump`: that of `py-spy dump` (0.4), so that a program that calls py-spy changes one
// word.
#pragma once

#include <chrono>
#include <string>

#include "base/types.h"

namespace CLI {
class App;
}

namespace rankstacks::cli {

struct DumpOptions {
  Pid pid = 0;       // 0: --core was given
  std::string core;  // a core file
  bool full_filenames = false, json = false, nonblocking = false, native = false, subprocesses = false;
  int locals = 0;  // how often --locals was given
  std::chrono::steady_clock::duration within = std::chrono::seconds(60);
};

class DumpCommand {
 public:
  // Called once, before the command line is parsed.
  void add_to(CLI::App& command);
  // After it was parsed. Throws CLI::ParseError for options that do not fit together.
  DumpOptions take();

 private:
  CLI::App* command_ = nullptr;
  DumpOptions options_;
  std::string pid_;
  double within_ = std::chrono::duration<double>(DumpOptions().within).count();
};

}  // namespace rankstacks::cli
