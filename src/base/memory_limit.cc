#include "base/memory_limit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <limits>
#include <string>

#include "base/control_groups.h"

namespace rankstacks {
inline namespace base {
namespace {

std::atomic<std::size_t> limit_in_force{std::numeric_limits<std::size_t>::max()};
std::array<std::atomic<std::size_t>, 3> taken{};  // indexed by MemoryUse

std::string text_of(const std::string& path) {
  std::string text;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(file, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  close(file);
  return text;
}

std::optional<std::size_t> number_of(std::string_view text) {
  std::size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return n;
}

}  // namespace

std::size_t share_of_memory(std::size_t limit, MemoryUse use) {
  switch (use) {
    case MemoryUse::kCopies: return limit / 4;
    case MemoryUse::kFrames: return limit / 8;
    case MemoryUse::kSections: return limit / 4;
  }
  return 0;
}

std::optional<std::size_t> control_group_limit(std::string_view proc_cgroup, std::string_view mountinfo) {
  std::optional<std::size_t> least;
  const auto read_limits = [&](const std::optional<ControlGroup>& group, const char* file) {
    if (!group) return;
    for (const std::string& directory : group->directories())
      if (const auto bytes = number_of(text_of(directory + file)))  // "max": no limit
        least = std::min(least.value_or(*bytes), *bytes);
  };
  read_limits(control_group_v2(proc_cgroup, mountinfo), "/memory.max");
  read_limits(control_group_v1(proc_cgroup, mountinfo, "memory"), "/memory.limit_in_bytes");
  return least;
}

std::size_t default_memory_limit() {
  struct sysinfo info {};
  std::size_t all = std::size_t{4} << 30;
  if (sysinfo(&info) == 0) all = static_cast<std::size_t>(info.totalram) * info.mem_unit;
  const auto group = control_group_limit(text_of("/proc/self/cgroup"), text_of("/proc/self/mountinfo"));
  return std::min(all, group.value_or(all)) / 2;
}

std::optional<std::size_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  double scale = 1;
  if (!unit.empty()) {
    constexpr std::string_view kUnits = "KMGT";
    const std::size_t at = kUnits.find(static_cast<char>(unit[0] & ~0x20));
    if (at == kUnits.npos) return std::nullopt;
    for (std::size_t i = 0; i <= at; ++i) scale *= 1024;
    unit.remove_prefix(1);
    if (unit == "iB" || unit == "B") unit = {};
  }
  constexpr double kMax = 1ull << 62;
  if (!unit.empty() || number * scale > kMax) return std::nullopt;
  return static_cast<std::size_t>(number * scale);
}

bool take_memory(MemoryUse use, std::size_t bytes) {
  std::atomic<std::size_t>& taken_of_use = taken[static_cast<std::size_t>(use)];
  const std::size_t share = share_of_memory(limit_in_force, use);
  std::size_t before = taken_of_use.load();
  do {
    if (bytes > share - std::min(share, before)) return false;
  } while (!taken_of_use.compare_exchange_weak(before, before + bytes));
  return true;
}

void give_back_memory(MemoryUse use, std::size_t bytes) { taken[static_cast<std::size_t>(use)] -= bytes; }

void enforce_memory_limit(std::size_t bytes) {
  limit_in_force = bytes;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory counts as data
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur <= bytes) return;
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_DATA, &limit);
#else
  (void)bytes;
#endif
}

void lift_memory_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_DATA, &limit);
}

}  // namespace base
}  // namespace rankstacks
