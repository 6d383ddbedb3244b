#include "capture/systemd_cores.h"

#include <dirent.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <memory>
#include <set>

#include "base/directory_stream.h"
#include "capture/job_names.h"
#include "capture/user_names.h"
#include "elf/image.h"
#include "target/core_target.h"

namespace rankstacks::capture {
namespace {

using WallClock = std::chrono::system_clock;

template <class T>
std::optional<T> number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// systemd writes what could be misread in a name as \x2e.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const bool escaped =
        text.substr(i).starts_with("\\x") && i + 4 <= text.size() &&
        std::from_chars(text.data() + i + 2, text.data() + i + 4, value, 16).ptr == text.data() + i + 4;
    plain += escaped ? static_cast<char>(value) : text[i];
    if (escaped) i += 3;
  }
  return plain;
}

Result<std::vector<SystemdCore>> list_cores(const std::string& path) {
  const DirectoryStream directory(opendir(path.c_str()));
  if (!directory)
    return fail({.code = errno == EACCES ? ErrorCode::kPermission : ErrorCode::kNotFound,
                 .subject = path,
                 .what = "cannot be read, where the cores are expected that systemd-coredump keeps",
                 .os_errno = errno,
                 .hint = errno == EACCES ? "as root" : "`rankstacks doctor` says where this machine's cores go"});
  std::vector<SystemdCore> cores;
  while (const dirent* entry = readdir(directory.get()))
    if (auto core = parse_systemd_core(entry->d_name)) cores.push_back(std::move(*core));
  std::sort(cores.begin(), cores.end(), [](const SystemdCore& a, const SystemdCore& b) {
    return a.time != b.time ? a.time < b.time : a.pid < b.pid;
  });
  return cores;
}

// Whether the environment in the core has a name of that job.
bool is_of_job(const std::string& path, const std::string& job, elf::ImageCache& images, const Deadline& deadline) {
  const auto core = target::CoreTarget::open(path, {}, images, deadline);
  if (!core) return false;
  const auto& environment = (*core)->environment();
  const JobNames names = job_names_of(environment, identity_from_environment(environment));
  for (std::size_t n = 0; n < kJobNames; ++n)
    if (shown_job_name(static_cast<JobName>(n), names.of[n]) == job) return true;
  return false;
}

std::string wanted(const SystemdChoice& choice) {
  std::string text = "no core";
  if (!choice.pids.empty()) text += fmt::format(" of pid {}", fmt::join(choice.pids, ", "));
  if (!choice.job.empty()) text += fmt::format(" of job {}", choice.job);
  if (!choice.user.empty()) text += fmt::format(" of user {}", choice.user);
  if (choice.since)
    text += fmt::format(" since {:%Y-%m-%d %H:%M:%S}Z", fmt::gmtime(WallClock::to_time_t(*choice.since)));
  return text + " in it";
}

Error none_found(const SystemdChoice& choice, const std::vector<SystemdCore>& all) {
  constexpr std::size_t kShown = 5;
  std::string there;
  for (std::size_t i = all.size(); i-- > 0 && all.size() - i <= kShown;)
    there += fmt::format("{}{} ({}, {:%Y-%m-%d %H:%M:%S}Z)", there.empty() ? "" : ", ", all[i].pid, all[i].command,
                         fmt::gmtime(WallClock::to_time_t(all[i].time)));
  return {.code = ErrorCode::kNotFound,
          .subject = choice.directory,
          .what = wanted(choice),
          .hint = there.empty() ? "it holds no cores at all; `coredumpctl dump PID -o FILE` fetches one of the journal"
                                : "the newest of its cores are of the pids " + there};
}

}  // namespace

std::optional<SystemdCore> parse_systemd_core(std::string_view name) {
  SystemdCore core;
  core.name = name;
  constexpr std::string_view kPrefix = "core.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  for (const std::string_view ending : {".zst", ".lz4", ".xz"})
    if (name.ends_with(ending)) {
      name.remove_suffix(ending.size());
      break;
    }
  const auto last = [&]() -> std::string_view {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return {};
    const std::string_view word = name.substr(dot + 1);
    name = name.substr(0, dot);
    return word;
  };
  const auto time = number<long>(last());
  const auto pid = number<Pid>(last());
  core.boot = last();
  const auto uid = number<long>(last());
  constexpr std::size_t kBootId = 32;
  if (!time || !pid || !uid || *pid == 0 || core.boot.size() != kBootId || name.empty()) return std::nullopt;
  core.command = unescaped(name);
  core.uid = *uid;
  core.pid = *pid;
  // Microseconds; seconds in the first versions.
  constexpr long kSecondsBelow = 100'000'000'000;
  core.time = WallClock::time_point(*time < kSecondsBelow ? std::chrono::microseconds(std::chrono::seconds(*time))
                                                          : std::chrono::microseconds(*time));
  return core;
}

Result<SystemdChoice> parse_systemd_choice(std::string_view word) {
  SystemdChoice choice;
  const auto refuse = [&](std::string what) {
    return fail({.code = ErrorCode::kUnsupported, .subject = "", .what = std::move(what)});
  };
  if (word.starts_with("user:") || word.starts_with("user=")) {
    choice.user = word.substr(5);
    if (choice.user.empty()) return refuse("a user's name is expected behind user:");
    return choice;
  }
  if (word.starts_with("cgroup:") || word.starts_with("cgroup="))
    return refuse("a core does not tell its control group; expected a PID, a job's name, or user:NAME");
  if (word.starts_with("pid:") || word.starts_with("pid=")) word.remove_prefix(4);
  else if (word.find_first_not_of("0123456789,") != std::string_view::npos) {
    choice.job = word;
    return choice;
  }
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t comma = std::min(word.find(',', at), word.size());
    const auto pid = number<Pid>(word.substr(at, comma - at));
    if (!pid || *pid == 0) return refuse("process ids are expected");
    choice.pids.push_back(*pid);
    at = comma + 1;
  }
  return choice;
}

std::optional<WallClock::time_point> parse_since(std::string_view text, WallClock::time_point now) {
  if (text.starts_with('@')) {
    const auto seconds = number<long>(text.substr(1));
    return seconds ? std::optional(WallClock::from_time_t(*seconds)) : std::nullopt;
  }
  struct Unit {
    std::string_view name;
    long seconds;
  };
  for (const Unit& unit : {Unit{"min", 60}, Unit{"s", 1}, Unit{"m", 60}, Unit{"h", 3600}, Unit{"d", 86400}}) {
    if (!text.ends_with(unit.name)) continue;
    const auto count = number<long>(text.substr(0, text.size() - unit.name.size()));
    constexpr long kMaxCount = 1'000'000;
    if (!count || *count > kMaxCount) return std::nullopt;
    return now - std::chrono::seconds(*count * unit.seconds);
  }
  std::string word(text);
  const bool utc = word.ends_with('Z');
  if (utc) word.pop_back();
  if (word.size() > 10 && word[10] == 'T') word[10] = ' ';
  for (const char* form : {"%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    std::tm time{};
    time.tm_isdst = -1;
    const char* end = strptime(word.c_str(), form, &time);
    if (end == nullptr || *end != 0) continue;
    const std::time_t seconds = utc ? timegm(&time) : mktime(&time);
    if (seconds != -1) return WallClock::from_time_t(seconds);
  }
  return std::nullopt;
}

Result<std::vector<std::string>> find_systemd_cores(const SystemdChoice& choice, const Deadline& deadline) {
  const auto all = list_cores(choice.directory);
  if (!all) return fail(all.error());
  std::optional<long> uid;
  if (!choice.user.empty()) {
    uid = UserNames::of_this_machine().uid_of(choice.user);
    if (!uid)
      return fail({.code = ErrorCode::kNotFound,
                   .subject = choice.user,
                   .what = "no such user",
                   .hint = "user:NUMBER takes any user"});
  }
  std::vector<std::string> paths;
  std::set<Pid> taken;
  elf::ImageCache images;
  // The newest first: a pid may have been that of several processes.
  for (auto core = all->rbegin(); core != all->rend(); ++core) {
    if (choice.since && core->time < *choice.since) break;
    if (uid && core->uid != *uid) continue;
    if (!choice.pids.empty() && (std::find(choice.pids.begin(), choice.pids.end(), core->pid) == choice.pids.end() ||
                                 !taken.insert(core->pid).second))
      continue;
    const std::string path = choice.directory + "/" + core->name;
    if (!choice.job.empty() && !is_of_job(path, choice.job, images, deadline)) continue;
    paths.push_back(path);
  }
  if (paths.empty()) return fail(none_found(choice, *all));
  std::reverse(paths.begin(), paths.end());
  return paths;
}

}  // namespace rankstacks::capture
