// The options of `rankstacks core` that name cores which systemd-coredump keeps.
#pragma once

#include <optional>
#include <string>

#include "capture/systemd_cores.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rankstacks::cli {

class SystemdOptions {
 public:
  // Called once, before the command line is parsed. Returns the option of the directory.
  CLI::Option* add_to(CLI::App& command);
  // After it was parsed; std::nullopt if none is asked for, which has_files allows.
  std::optional<capture::SystemdChoice> take(bool has_files) const;

 private:
  CLI::Option *systemd_ = nullptr, *since_ = nullptr;
  std::string systemd_word_, since_word_, directory_ = capture::SystemdChoice::kDirectory;
};

}  // namespace rankstacks::cli
