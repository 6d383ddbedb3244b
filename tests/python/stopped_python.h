// A real interpreter running tests/python/truth.py, stopped at the line that it reported.
#pragma once

#include <sys/types.h>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace rankstacks::testing {

struct TrueFrame {
  std::string name, file;
  std::optional<int> line;
  std::optional<std::string> qualname;
  std::optional<std::map<std::string, std::int64_t>> numbers =
      std::nullopt;                                // loop counters; std::nullopt if not reported
  bool operator==(const TrueFrame& other) const {  // the place
    return name == other.name && file == other.file && line == other.line && qualname == other.qualname;
  }
};
std::ostream& operator<<(std::ostream& out, const TrueFrame& frame);

struct InstalledPython {
  std::string path;              // in `root`
  std::string root;              // the directory that it runs in by chroot; empty: none
  std::string version;           // "3.9.18"
  bool has_jit = false;          // built with a JIT compiler that PYTHON_JIT=1 enables (3.14 and newer)
  std::string environment = {};  // "PYTHON_JIT=1": a variable that is set for it; empty: none
  std::string name() const { return environment + (environment.empty() ? "" : " ") + root + path; }
};

// Every CPython 3 to test with: all of pyenv's, Debian's own, those that scripts/setup-newer-pythons has unpacked, and
// those in $RANKSTACKS_TEST_PYTHONS (paths, separated by colons). Prints once which ones are missing, and why.
const std::vector<InstalledPython>& installed_pythons();

// Those of them that have a JIT compiler, with the compiler enabled.
std::vector<InstalledPython> pythons_with_jit();

// The output of `python SCRIPT ARGUMENT...` for a script of tests/python; empty if it failed.
std::string output_of(const InstalledPython& python, const std::string& script,
                      const std::vector<std::string>& arguments = {});

class StoppedPython {
 public:
  // Starts `python truth.py name` and waits until it has stopped itself. `arguments` go before the script.
  StoppedPython(const InstalledPython& python, const std::string& name, std::vector<std::string> arguments = {});
  ~StoppedPython();
  StoppedPython(const StoppedPython&) = delete;
  StoppedPython& operator=(const StoppedPython&) = delete;

  pid_t pid() const { return pid_; }
  bool stopped() const { return stopped_; }
  const std::string& output() const { return output_; }                   // if it did not stop
  const std::optional<std::string>& skipped() const { return skipped_; }  // why this version has no such case
  const std::string& version() const { return version_; }                 // "3.9.18"

  // One entry for each stack that was reported: (pthread id, frames), innermost frame first. Several have one id if
  // several interpreters run on one thread.
  const std::vector<std::pair<std::uint64_t, std::vector<TrueFrame>>>& stacks() const { return stacks_; }

 private:
  pid_t pid_ = -1;
  bool stopped_ = false;
  std::string output_, version_;
  std::optional<std::string> skipped_;
  std::vector<std::pair<std::uint64_t, std::vector<TrueFrame>>> stacks_;
};

}  // namespace rankstacks::testing
