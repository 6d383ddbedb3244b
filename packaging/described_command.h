// The command line's description, reduced to what man pages and completions show.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace rankstacks::packaging {

struct DescribedOption {
  std::vector<std::string> names;  // with dashes, short names first; for a positional argument its name alone
  bool positional = false;
  bool takes_value = false;
  bool may_lack_value = false;  // --job, --job ID
  bool required = false;
  bool repeats = false;
  std::string value;                 // placeholder for the value: FILE, DIR, PID ...
  std::vector<std::string> choices;  // the only accepted values; empty: any value
  std::string default_value;
  std::string text;
};

struct DescribedCommand {
  std::string name;
  std::string text;
  std::string footer;
  std::vector<DescribedOption> options;  // includes positional arguments
  std::vector<DescribedCommand> commands;
};

// Reads from CLI11's `app` everything except what --help does not show.
DescribedCommand describe(const CLI::App& app);

}  // namespace rankstacks::packaging
