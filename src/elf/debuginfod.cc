#include "elf/debuginfod.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "elf/image.h"

namespace rankstacks::elf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kCommand = "debuginfod-find";
constexpr std::size_t kMaxAnswer = 64 << 10;  // a path

bool is_command() {
  const char* path = std::getenv("PATH");
  const std::string directories = path == nullptr ? "/usr/bin:/bin" : path;
  for (std::size_t at = 0; at <= directories.size();) {
    const std::size_t end = std::min(directories.find(':', at), directories.size());
    const std::string directory = directories.substr(at, end - at);
    if (!directory.empty() && access((directory + "/" + kCommand).c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

struct Answer {
  bool in_time = false;
  std::string text;  // empty: no such file
};

// It runs in a process group of its own, which is killed when the time is over.
Answer run(const std::vector<std::string>& words, Clock::time_point end) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return {.in_time = true};
  FileDescriptor out(ends[0]);
  FileDescriptor in(ends[1]);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, in.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, kCommand, &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  in = FileDescriptor();
  if (failed != 0) return {.in_time = true};

  Answer answer;
  char piece[4096];
  bool ended = false;
  while (!ended) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd readable{out.get(), POLLIN, 0};
    const int ready = left <= 0 ? 0 : poll(&readable, 1, static_cast<int>(std::min<long>(left, 1000)));
    if (ready == 0 && left <= 0) break;
    if (ready <= 0) continue;
    const ssize_t n = read(out.get(), piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    ended = n <= 0;
    if (n > 0 && answer.text.size() < kMaxAnswer) answer.text.append(piece, static_cast<std::size_t>(n));
  }
  // It may have closed its output without an end.
  int status = 0;
  pid_t reaped = 0;
  while (ended && (reaped = waitpid(child, &status, WNOHANG)) == 0 && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (reaped != child) {
    kill(-child, SIGKILL);
    waitpid(child, &status, 0);
    return {};
  }
  answer.in_time = true;
  answer.text = answer.text.substr(0, answer.text.find('\n'));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !answer.text.starts_with('/')) answer.text.clear();
  return answer;
}

}  // namespace

Result<std::shared_ptr<Debuginfod>> Debuginfod::open(Clock::duration limit) {
  if (!is_command())
    return fail({.code = ErrorCode::kNotFound,
                 .subject = kCommand,
                 .what = "no such command",
                 .hint = "Debian, Ubuntu: apt install debuginfod; Fedora: dnf install elfutils-debuginfod-client"});
  const char* urls = std::getenv("DEBUGINFOD_URLS");
  if (urls == nullptr || *urls == '\0')
    return fail({.code = ErrorCode::kNotFound,
                 .subject = "DEBUGINFOD_URLS",
                 .what = "names no server",
                 .hint = "export DEBUGINFOD_URLS=https://debuginfod.elfutils.org/"});
  return std::shared_ptr<Debuginfod>(new Debuginfod(limit));
}

std::optional<std::string> Debuginfod::find(Kind kind, const BuildId& id) {
  if (id.size() < 2) return std::nullopt;
  Clock::time_point end;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find({kind, id}); known != known_.end()) return known->second;
    if (!end_) end_ = Clock::now() + limit_;
    end = *end_;
    if (Clock::now() >= end) {
      ++given_up_;
      known_.try_emplace({kind, id});
      return std::nullopt;
    }
  }
  const Answer answer = run({kCommand, kind == Kind::kExecutable ? "executable" : "debuginfo", to_string(id)}, end);
  const std::lock_guard lock(mutex_);
  if (!answer.in_time) ++given_up_;
  auto found = answer.text.empty() ? std::nullopt : std::optional(answer.text);
  return known_.try_emplace({kind, id}, std::move(found)).first->second;
}

std::string Debuginfod::given_up() const {
  const std::lock_guard lock(mutex_);
  if (given_up_ == 0) return "";
  return fmt::format("debuginfod: {} {} not waited for, as the time for all of them was over",
                     counted(given_up_, "file"), given_up_ == 1 ? "was" : "were");
}

}  // namespace rankstacks::elf
