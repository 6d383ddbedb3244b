#include "stopped_python.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <ostream>
#include <sstream>

namespace rankstacks::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kSources = RANKSTACKS_FIXTURES "/../tests/python";
const fs::path kNewerPythons = RANKSTACKS_FIXTURES "/../build/newer-pythons";
constexpr const char* kNewerVersions[] = {"3.14", "3.15"};
constexpr std::size_t kMaxOutput = 64u << 20;  // of all_lines.py: 5 MB

// In the child: executes `command`, in `root` if one is given.
[[noreturn]] void execute(const std::string& root, const std::string& environment,
                          const std::vector<std::string>& command) {
  if (!root.empty() && (::chroot(root.c_str()) != 0 || ::chdir("/") != 0)) ::_exit(127);
  if (const std::size_t equals = environment.find('='); equals != environment.npos) {
    ::setenv(environment.substr(0, equals).c_str(), environment.c_str() + equals + 1, 1);
  }
  std::vector<char*> argv;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

// Runs a command and returns what it printed, up to a limit; empty if it failed.
std::string output_of(const std::vector<std::string>& command, const std::string& root = {},
                      const std::string& environment = {}) {
  std::array<int, 2> out;
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return {};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out[1], 1);
    ::dup2(::open("/dev/null", O_WRONLY), 2);
    execute(root, environment, command);
  }
  ::close(out[1]);
  std::string text;
  std::vector<char> buffer(1u << 16);
  for (ssize_t n; (n = ::read(out[0], buffer.data(), buffer.size())) > 0 && text.size() < kMaxOutput;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  ::close(out[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : std::string();
}

// Whether the interpreter runs, its version, and whether it has a JIT compiler.
bool ask(InstalledPython& python) {
  const std::string text = output_of({python.path, "-c",
                                      "import sys; sys.stdout.write('%d.%d.%d ' % sys.version_info[:3] + "
                                      "str(hasattr(sys, '_jit') and sys._jit.is_available()))"},
                                     python.root);
  const std::size_t space = text.find(' ');
  if (text.rfind("3.", 0) != 0 || space == text.npos) return false;
  python.version = text.substr(0, space);
  python.has_jit = text.substr(space + 1) == "True";
  return true;
}

// A copy of tests/python in a root directory, which exists as long as this program runs; its path inside of the root.
class ScriptsInRoot {
 public:
  explicit ScriptsInRoot(const fs::path& root)
      : inside_("/tmp/tests-python." + std::to_string(::getpid())),
        outside_(root.string() + inside_),
        owner_(::getpid()) {
    std::error_code failed;
    fs::create_directories(outside_, failed);
    for (const char* script : {"truth.py", "all_lines.py"})
      fs::copy_file(kSources / script, fs::path(outside_) / script, failed);
  }
  ~ScriptsInRoot() {
    std::error_code ignored;
    if (::getpid() == owner_) fs::remove_all(outside_, ignored);
  }
  ScriptsInRoot(const ScriptsInRoot&) = delete;
  ScriptsInRoot& operator=(const ScriptsInRoot&) = delete;
  const std::string& inside() const { return inside_; }

 private:
  std::string inside_, outside_;
  pid_t owner_;
};

std::string script_for(const InstalledPython& python, const std::string& script) {
  if (python.root.empty()) return kSources / script;
  static std::map<std::string, ScriptsInRoot> copies;
  return copies.try_emplace(python.root, python.root).first->second.inside() + "/" + script;
}

// Why this version of scripts/setup-newer-pythons cannot be run; empty if it can.
std::optional<std::string> missing(const std::string& version) {
  if (!fs::exists(kNewerPythons / (version + ".complete"))) {
    std::ifstream reason(kNewerPythons / (version + ".reason"));
    std::string why;
    return std::getline(reason, why) ? why : "scripts/setup-newer-pythons has not been run";
  }
  if (::geteuid() != 0) return "it is run with chroot, which only root may do";
  return std::nullopt;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const TrueFrame& frame) {
  out << frame.name << " (" << frame.file << ":" << (frame.line ? std::to_string(*frame.line) : "None") << ")";
  if (frame.qualname) out << " [" << *frame.qualname << "]";
  return out;
}

const std::vector<InstalledPython>& installed_pythons() {
  static const std::vector<InstalledPython> found = [] {
    std::vector<std::string> candidates;
    std::string root = output_of({"pyenv", "root"});
    while (!root.empty() && root.back() == '\n') root.pop_back();
    std::error_code ignored;
    if (!root.empty()) {
      for (const auto& entry : fs::directory_iterator(root + "/versions", ignored))
        candidates.push_back(entry.path() / "bin/python3");
    }
    for (int minor = 6; minor < 16; ++minor) candidates.push_back("/usr/bin/python3." + std::to_string(minor));
    if (const char* more = std::getenv("RANKSTACKS_TEST_PYTHONS")) {
      std::istringstream list(more);
      for (std::string path; std::getline(list, path, ':');) candidates.push_back(path);
    }
    std::sort(candidates.begin(), candidates.end());
    std::vector<InstalledPython> pythons;
    for (const std::string& path : candidates) {
      InstalledPython python{.path = path};
      if (::access(path.c_str(), X_OK) == 0 && ask(python)) pythons.push_back(std::move(python));
    }
    for (const std::string version : kNewerVersions) {
      InstalledPython python{.path = "/usr/bin/python" + version,
                             .root = fs::weakly_canonical(kNewerPythons / "root").string()};
      if (const auto why = missing(version)) std::cerr << "skipped: CPython " << version << ": " << *why << "\n";
      else if (ask(python)) pythons.push_back(std::move(python));
      else std::cerr << "skipped: CPython " << version << " in " << python.root << " does not run\n";
    }
    return pythons;
  }();
  return found;
}

std::vector<InstalledPython> pythons_with_jit() {
  std::vector<InstalledPython> pythons;
  for (InstalledPython python : installed_pythons()) {
    if (!python.has_jit) continue;
    python.environment = "PYTHON_JIT=1";
    pythons.push_back(std::move(python));
  }
  return pythons;
}

std::string output_of(const InstalledPython& python, const std::string& script,
                      const std::vector<std::string>& arguments) {
  std::vector<std::string> command{python.path, script_for(python, script)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return output_of(command, python.root, python.environment);
}

StoppedPython::StoppedPython(const InstalledPython& python, const std::string& name, std::vector<std::string> arguments)
    : version_(python.version) {
  const std::string script = script_for(python, "truth.py");
  std::array<int, 2> out;
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(out[1], 1);
    ::dup2(out[1], 2);
    std::vector<std::string> command{python.path};
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.insert(command.end(), {script, name});
    execute(python.root, python.environment, command);
  }
  ::close(out[1]);

  // Its output may exceed a pipe, so it is read while waiting; it has printed everything before it stops or ends.
  ::fcntl(out[0], F_SETFL, O_NONBLOCK);
  std::string text;
  std::array<char, 65536> buffer;
  int status = 0;
  for (bool over = false; !over;) {
    pollfd wait{out[0], POLLIN, 0};
    ::poll(&wait, 1, 20);
    over = ::waitpid(pid_, &status, WUNTRACED | WNOHANG) != 0;
    for (ssize_t n; (n = ::read(out[0], buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(out[0]);
  stopped_ = WIFSTOPPED(status);
  if (!stopped_) pid_ = -1;
  output_ = text;

  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("skip: ", 0) == 0) skipped_ = line.substr(6);
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    std::vector<TrueFrame> frames;
    for (const auto& f : json["frames"]) {
      TrueFrame frame{f[0].get<std::string>(), f[1].get<std::string>(), std::nullopt, std::nullopt};
      if (f[2].is_number()) frame.line = f[2].get<int>();
      if (f[3].is_string()) frame.qualname = f[3].get<std::string>();
      if (f[4].is_object()) frame.numbers = f[4].get<std::map<std::string, std::int64_t>>();
      frames.push_back(std::move(frame));
    }
    stacks_.emplace_back(json["ident"].get<std::uint64_t>(), std::move(frames));
  }
}

StoppedPython::~StoppedPython() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace rankstacks::testing
