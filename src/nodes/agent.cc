#include "nodes/agent.h"

#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/deadline.h"
#include "nodes/answer_lines.h"
#include "nodes/child.h"
#include "nodes/node_script.h"
#include "report/compact_form.h"
#include "report/report_file.h"

namespace rankstacks::nodes {
namespace {

constexpr std::size_t kMaxSaid = 65536;
constexpr std::size_t kMaxReason = 512;

std::string own_name() {
  if (const char* slurm = std::getenv("SLURMD_NODENAME"); slurm != nullptr && *slurm != 0 && !std::strchr(slurm, ' '))
    return slurm;
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "unknown";
  return name;
}

// Lines as answer_line() makes them; a pipe takes each as a whole. Ends the agent if nobody reads.
void print(std::string_view text) {
  static_assert(kLineBytes <= PIPE_BUF);
  while (!text.empty()) {
    const ssize_t n = write(STDOUT_FILENO, text.data(), std::min(text.size(), kLineBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd room{STDOUT_FILENO, POLLOUT, 0};
      poll(&room, 1, -1);
      continue;
    }
    if (n < 0) _exit(1);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void remove_own_copy(const std::string& directory) {
  if (directory == "-") return;
  unlink((directory + "/rankstacks").c_str());
  rmdir(directory.c_str());
}

// Returns false at the end.
bool read_some(FileDescriptor& file, std::string& into, std::size_t limit) {
  char bytes[65536];
  const ssize_t n = read(file.get(), bytes, sizeof bytes);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) return false;
  into.append(bytes, std::min(static_cast<std::size_t>(n), limit - std::min(limit, into.size())));
  return true;
}

// What the tool prints, until it has ended. False: the time was over, or nobody reads.
bool collect(Child& child, NodeReply& reply, const Deadline& deadline, bool& unread) {
  while (child.out.is_open() || child.err.is_open()) {
    pollfd polled[3] = {{child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}, {STDOUT_FILENO, 0, 0}};
    poll(polled, 3, 100);
    unread = (polled[2].revents & (POLLERR | POLLHUP)) != 0;
    if (unread || deadline.passed()) return false;
    if (child.out.is_open() && !read_some(child.out, reply.report, report::kMaxReportBytes + 1)) child.out.close();
    if (child.err.is_open() && !read_some(child.err, reply.said, kMaxSaid)) child.err.close();
  }
  for (; !child.ended(); poll(nullptr, 0, 10))
    if (deadline.passed()) return false;
  reply.exit_status = *child.ended();
  return true;
}

// Waits for the common start; not if this node's clock is so far behind that it would take too long. Ends the agent if
// nobody reads.
void wait_for_start(std::chrono::system_clock::time_point start) {
  using std::chrono::milliseconds;
  const auto left = start - std::chrono::system_clock::now();
  if (left > kMaxStartDelay) return;
  for (const Deadline deadline = Deadline::after(left); !deadline.passed();) {
    pollfd reader{STDOUT_FILENO, 0, 0};
    const auto rest = std::chrono::ceil<milliseconds>(start - std::chrono::system_clock::now());
    if (poll(&reader, 1, static_cast<int>(std::clamp<long>(rest.count(), 0, 1000))) > 0) _exit(1);
  }
}

[[noreturn]] void run_agent(const std::string& nonce, std::chrono::seconds limit, std::chrono::milliseconds start,
                            const std::string& directory, std::vector<std::string> words) {
  remove_own_copy(directory);
  std::signal(SIGPIPE, SIG_IGN);
  const Deadline deadline = Deadline::after(limit);
  const std::string name = own_name();
  const std::string prefix = answer_prefix(nonce, name);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  print(
      answer_line(prefix, fmt::format("hello {}", std::chrono::duration_cast<std::chrono::milliseconds>(now).count())));
  const bool is_gateway = !words.empty() && words.front() == "job";
  words.insert(words.begin(), "/proc/self/exe");
  wait_for_start(std::chrono::system_clock::time_point(start));
  NodeReply reply;
  bool unread = false, whole = false;
  {
    auto child = Child::start(words, false);
    if (!child) {
      print(answer_line(prefix, "fault cannot-run " + child.error().message()));
      _exit(0);
    }
    whole = collect(*child, reply, deadline, unread);
    // The tool lets go of what it has stopped.
    if (!whole) child->send(SIGTERM);
    for (int i = 0; !whole && i < 100 && !child->ended(); ++i) poll(nullptr, 0, 10);
  }
  if (unread) _exit(1);
  if (!whole) {
    print(answer_line(prefix, fmt::format("fault timeout the tool has not ended within {} s", limit.count())));
    _exit(0);
  }
  // The nodes behind a gateway without a report are to be asked otherwise.
  if (is_gateway && (reply.report.empty() || reply.report.size() > report::kMaxReportBytes)) {
    const std::string_view said = std::string_view(reply.said).substr(0, reply.said.find('\n'));
    const std::string_view why = reply.report.empty() ? said.substr(0, kMaxReason) : "its report is too large";
    print(answer_line(prefix, fmt::format("fault cannot-run {}", why)));
    _exit(0);
  }
  reply.report = report::as_compact_form(std::move(reply.report), report::kMaxReportDepth);
  const auto lines = answer_lines(reply, nonce, name);
  print(lines ? *lines : answer_line(prefix, "fault cannot-run " + lines.error().message()));
  _exit(0);
}

}  // namespace

void run_agent_if_asked(int argc, const char* const* argv) {
  if (argc < 7 || argv[1] != kAgentOption) return;
  const long limit = std::strtol(argv[3], nullptr, 10);
  constexpr long long kYear9999 = 253'402'300'799'000;  // a time_point holds later ones only for some clocks
  const long long start = std::strtoll(argv[4], nullptr, 10);
  run_agent(argv[2], std::chrono::seconds(std::clamp(limit, 1L, 86400L)),
            std::chrono::milliseconds(std::clamp(start, 0LL, kYear9999)), argv[5],
            std::vector<std::string>(argv + 6, argv + argc));
}

}  // namespace rankstacks::nodes
