#include "target/oom_kills.h"

#include <charconv>

#include <fmt/format.h>

#include "base/text.h"
#include "target/proc.h"

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxFile = 64 << 10;
constexpr std::string_view kMount = "/sys/fs/cgroup";

// Calls `f` with each line.
template <class F>
void each_line(std::string_view text, F&& f) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    f(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

}  // namespace

std::vector<std::string> oom_count_files(std::string_view cgroups) {
  std::vector<std::string> files;
  each_line(cgroups, [&](std::string_view line) {  // "4:memory:/path", "0::/path"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    // Outside of the tool's own root of groups.
    if (path.empty() || path.front() != '/' || contains(path, "/..")) return;
    const std::string_view below = path == "/" ? "" : path;
    if (controllers == "memory") files.push_back(fmt::format("{}/memory{}/memory.oom_control", kMount, below));
    if (!controllers.empty()) return;
    files.push_back(fmt::format("{}{}/memory.events", kMount, below));
    files.push_back(fmt::format("{}/unified{}/memory.events", kMount, below));
  });
  return files;
}

std::optional<std::uint64_t> parse_oom_kills(std::string_view text) {
  std::optional<std::uint64_t> kills;
  each_line(text, [&](std::string_view line) {
    constexpr std::string_view kName = "oom_kill ";
    if (!line.starts_with(kName)) return;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(line.data() + kName.size(), line.data() + line.size(), value);
    if (error == std::errc() && end == line.data() + line.size()) kills = value;
  });
  return kills;
}

std::optional<std::uint64_t> oom_kills_of(Pid pid) {
  const auto cgroups = proc::read_file(fmt::format("/proc/{}/cgroup", pid), kMaxFile);
  if (!cgroups) return std::nullopt;
  for (const std::string& file : oom_count_files(*cgroups)) {
    const auto text = proc::read_file(file, kMaxFile);
    if (!text) continue;
    if (const auto kills = parse_oom_kills(*text)) return kills;
  }
  return std::nullopt;
}

}  // namespace rankstacks::target
