#include "cli/forked_work.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/unattended.h"

namespace rankstacks::cli {
namespace {

[[noreturn]] void run_as_child(const std::function<std::string()>& work, const FileDescriptor& out, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it has ended before the call above
  const std::string result = work();
  std::string_view left = result;
  while (!left.empty()) {
    const ssize_t n = write(out.get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) _exit(1);
    left.remove_prefix(static_cast<std::size_t>(n));
  }
  end_at_once(0);
}

// Reads to the end of the pipe. False: the time is over, or there is too much.
bool read_all(const FileDescriptor& in, const WorkLimit& limit, std::size_t most, std::string& into) {
  constexpr std::chrono::milliseconds kPause{100};
  Deadline deadline = limit.deadline;
  std::array<char, 65536> buffer;
  while (true) {
    if (limit.shortened)
      if (const auto nearer = limit.shortened(); nearer && nearer->left() < deadline.left()) deadline = *nearer;
    if (deadline.passed()) return false;
    pollfd ready{in.get(), POLLIN, 0};
    const auto wait = std::min<Deadline::Clock::duration>(kPause, deadline.left());
    if (poll(&ready, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count())) <= 0) continue;
    const ssize_t n = read(in.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0;
    into.append(buffer.data(), static_cast<std::size_t>(n));
    if (into.size() > most) return false;
  }
}

// How long a process that has done its work may take to end: the kernel takes back its memory, which may be gigabytes.
constexpr std::chrono::seconds kToEnd{10};
// And one that was killed. A process that the kernel holds, as in a request to a file server that does not answer, is
// not ended by a signal: it is left behind, and ends when that wait does.
constexpr std::chrono::seconds kToBeKilled{1};

std::vector<pid_t> left_behind;

// The wait status; std::nullopt if it has not ended within that time.
std::optional<int> end_of(pid_t child, Deadline::Clock::duration limit) {
  constexpr std::chrono::milliseconds kPause{2};
  const Deadline deadline = Deadline::after(limit);
  while (true) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if ((ended < 0 && errno != EINTR) || deadline.passed()) return std::nullopt;
    std::this_thread::sleep_for(kPause);
  }
}

void reap_left_behind() {
  std::erase_if(left_behind, [](pid_t child) { return waitpid(child, nullptr, WNOHANG) == child; });
}

}  // namespace

std::optional<std::string> do_forked(const std::function<std::string()>& work, const WorkLimit& limit,
                                     std::size_t most) {
  reap_left_behind();
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  FileDescriptor in(ends[0]), out(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    in = FileDescriptor();
    run_as_child(work, out, parent);
  }
  out = FileDescriptor();
  std::string result;
  const bool in_time = read_all(in, limit, most, result);
  std::optional<int> status;
  if (in_time) status = end_of(child, kToEnd);
  if (!status) {
    kill(child, SIGKILL);
    if (!end_of(child, kToBeKilled)) left_behind.push_back(child);
  }
  const bool done = status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
  return done ? std::optional(std::move(result)) : std::nullopt;
}

}  // namespace rankstacks::cli
