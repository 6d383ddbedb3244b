#include "cli/shared_job.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>

#include "base/sha256.h"
#include "base/text.h"
#include "cli/shared_look.h"

namespace rankstacks::cli {
namespace {

using WallClock = std::chrono::system_clock;

// job-TIME-KEY, as the reports' names (shared_look.cc); in it a line for each process: "4711:1234567".
constexpr std::string_view kPrefix = "job-";
constexpr const char* kLock = "lock-finding";
constexpr std::size_t kKept = 16, kMaxBytes = 1u << 20;
constexpr int kShareOfWait = 8;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(WallClock::now().time_since_epoch()).count();
}

std::string line_of(Pid pid, std::uint64_t start_ticks) { return fmt::format("{}:{}\n", pid, start_ticks); }

struct Named {
  std::int64_t time = 0;
  std::string key;
};

std::optional<Named> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  Named named;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), named.time);
  const auto rest = name.substr(static_cast<std::size_t>(stop - name.data()));
  if (error != std::errc() || !rest.starts_with('-')) return std::nullopt;
  named.key = rest.substr(1);
  const bool valid = !named.key.empty() && std::all_of(named.key.begin(), named.key.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  return valid ? std::optional(named) : std::nullopt;
}

std::optional<std::string> known_key(const PrivateDirectory& directory, const std::string& line,
                                     std::int64_t earliest) {
  const std::vector<std::string> names = directory.names();
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const auto named = parse_name(*name);
    if (!named || named->time < earliest || named->time > now_ms()) continue;
    const auto text = directory.read(*name, kMaxBytes);
    if (text && (text->starts_with(line) || contains(*text, '\n' + line))) return named->key;
  }
  return std::nullopt;
}

void remember(const PrivateDirectory& directory, std::int64_t time, const std::string& key,
              const std::vector<capture::FoundProcess>& processes) {
  std::string text;
  for (const capture::FoundProcess& process : processes) text += line_of(process.pid, process.start_ticks);
  if (text.size() <= kMaxBytes) (void)directory.write(fmt::format("{}{:013}-{}", kPrefix, time, key), text);
  std::vector<std::string> names = directory.names();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with(kPrefix); });
  for (std::size_t i = 0; i + kKept < names.size(); ++i) directory.remove(names[i]);
}

}  // namespace

std::string key_of(const std::vector<capture::FoundProcess>& processes) {
  std::string ranks;
  for (const capture::FoundProcess& process : processes)
    if (process.kind == RankKind::kRank) ranks += fmt::format("{}:{} ", process.pid, process.start_ticks);
  std::string key;
  constexpr std::size_t kBytes = 8;
  const Sha256 hash = sha256(ranks);
  for (std::size_t i = 0; i < kBytes; ++i) key += fmt::format("{:02x}", hash[i]);
  return key;
}

std::string find_together(const PrivateDirectory& directory, Pid pid, std::uint64_t start_ticks,
                          const Deadline& deadline, const std::function<std::vector<capture::FoundProcess>()>& find) {
  const std::int64_t earliest = now_ms() - std::chrono::milliseconds(kShared).count();
  const auto lock = directory.lock(kLock, Deadline::after(deadline.left() / kShareOfWait));
  if (auto known = known_key(directory, line_of(pid, start_ticks), earliest)) return *known;
  const std::int64_t begun = now_ms();
  const std::vector<capture::FoundProcess> processes = find();
  std::string key = key_of(processes);
  remember(directory, begun, key, processes);
  return key;
}

}  // namespace rankstacks::cli
