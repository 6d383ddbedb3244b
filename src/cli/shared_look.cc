#include "cli/shared_look.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <optional>

#include "report/packed.h"
#include "report/report.h"
#include "report/report_file.h"

namespace rankstacks::cli {
namespace {

using WallClock = std::chrono::system_clock;

// dump-TIME-KEY.json.zst; the time in milliseconds has 13 digits until 2286, so that names sort by time.
constexpr std::string_view kPrefix = "dump-", kSuffix = ".json.zst";
constexpr std::size_t kKeptReports = 16;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(WallClock::now().time_since_epoch()).count();
}

std::string name_of(std::int64_t time, const std::string& key) {
  return fmt::format("{}{:013}-{}{}", kPrefix, time, key, kSuffix);
}

std::optional<std::int64_t> time_of(std::string_view name, std::string_view key) {
  if (!name.starts_with(kPrefix) || !name.ends_with(fmt::format("-{}{}", key, kSuffix))) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::int64_t time = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), time);
  return error == std::errc() && *stop == '-' ? std::optional(time) : std::nullopt;
}

// The lock of a job is one of these: a file for each job would stay for ever, as a lock's file cannot be removed
// safely.
std::string lock_of(const std::string& key) { return "lock-" + key.substr(0, 2); }
std::string second_lock_of(const std::string& key) { return "second-" + lock_of(key); }

// Each wait takes half of the time that is left then: a look needs the rest.
constexpr int kShareOfWait = 2;

std::optional<Look> read_answer(const PrivateDirectory& directory, const std::string& name) {
  auto bytes = directory.read(name, report::kMaxReportBytes);
  const std::string path = directory.path() + '/' + name;
  auto text = bytes ? report::unpack(std::move(*bytes), report::kMaxReportBytes, path)
                    : Result<std::string>(fail({.code = ErrorCode::kNotFound, .subject = path, .what = "is gone"}));
  auto job = text ? report::read_json_report(*text, path) : Result<JobSnapshot>(fail(text.error()));
  if (!job) return std::nullopt;
  analyzers::Analysis analysis = analyzers::analyze(*job);
  return Look{std::move(*job), std::move(analysis), path};
}

// The newest report of the job that was begun at `earliest` or later.
std::optional<Look> recent_answer(const PrivateDirectory& directory, const std::string& key, std::int64_t earliest) {
  const std::vector<std::string> names = directory.names();
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const auto time = time_of(*name, key);
    if (time && *time >= earliest && *time <= now_ms()) return read_answer(directory, *name);
  }
  return std::nullopt;
}

void remove_old_reports(const PrivateDirectory& directory) {
  std::vector<std::string> names = directory.names();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with(kPrefix) || !name.ends_with(kSuffix); });
  for (std::size_t i = 0; i + kKeptReports < names.size(); ++i) directory.remove(names[i]);
}

}  // namespace

Result<Look> look_together(const PrivateDirectory& directory, const std::string& key, const Deadline& deadline,
                           const std::function<Look()>& look) {
  const std::int64_t earliest = now_ms() - std::chrono::milliseconds(kShared).count();
  std::string waited_for;
  auto lock = directory.lock(lock_of(key), Deadline::after(deadline.left() / kShareOfWait));
  if (!lock && lock.error().code == ErrorCode::kTimeout) {
    waited_for = lock.error().subject;
    lock = directory.lock(second_lock_of(key), Deadline::after(deadline.left() / kShareOfWait));
  }
  if (!lock && lock.error().code != ErrorCode::kTimeout) return fail(lock.error());
  if (auto answer = recent_answer(directory, key, earliest)) return std::move(*answer);
  const std::string name = name_of(now_ms(), key);
  Look made = look();
  made.waited_for = std::move(waited_for);
  const auto packed = report::pack(report::json_report(made.job, made.analysis), report::Packing::kZstd, name);
  made.not_written = packed ? directory.write(name, *packed) : ENOMEM;
  if (made.not_written == 0) made.path = directory.path() + '/' + name;
  remove_old_reports(directory);
  return made;
}

}  // namespace rankstacks::cli
