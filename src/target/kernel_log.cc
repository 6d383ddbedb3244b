#include "target/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <charconv>

#include "base/file_descriptor.h"

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxRecord = 8192;  // the kernel gives no longer ones: CONSOLE_EXT_LOG_MAX
constexpr std::size_t kMaxRecords = 200'000;
constexpr std::size_t kMaxKills = 4096;
constexpr std::size_t kMaxName = 64;  // TASK_COMM_LEN is 16; a name may have escapes of four characters

template <class Number>
std::optional<Number> number_at(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

// "Memory cgroup out of memory: Killed process 13571 (python3) total-vm:276100kB, ..."
std::optional<KernelKill> out_of_memory(std::string_view text) {
  constexpr std::string_view kKilled = "Killed process ", kAfterName = ") total-vm:";
  const std::size_t killed = text.find(kKilled);
  if (killed == text.npos) return std::nullopt;
  const std::string_view rest = text.substr(killed + kKilled.size());
  const auto pid = number_at<Pid>(rest);
  const std::size_t open = rest.find('('), close = rest.find(kAfterName);
  if (!pid || open == rest.npos || close == rest.npos || close < open) return std::nullopt;
  return KernelKill{.pid = *pid,
                    .name = std::string(rest.substr(open + 1, std::min(close - open - 1, kMaxName))),
                    .cause = KernelKill::Cause::kOutOfMemory,
                    .text = std::string(text)};
}

// "python3[5293]: segfault at 1230 ip ...", "traps: python3[5293] general protection fault ip:..."
std::optional<KernelKill> fault(std::string_view text) {
  constexpr std::string_view kTraps = "traps: ";
  if (text.starts_with(kTraps)) text.remove_prefix(kTraps.size());
  for (const std::string_view what : {"]: segfault at ", "] general protection fault", "] trap "}) {
    const std::size_t end = text.find(what);
    if (end == text.npos) continue;
    const std::size_t open = text.rfind('[', end);
    if (open == text.npos || open == 0 || open > kMaxName) return std::nullopt;
    const auto pid = number_at<Pid>(text.substr(open + 1, end - open - 1));
    if (!pid) return std::nullopt;
    return KernelKill{.pid = *pid,
                      .name = std::string(text.substr(0, open)),
                      .cause = KernelKill::Cause::kFault,
                      .text = std::string(text)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<LoggedKill> parse_kernel_record(std::string_view record) {
  const std::size_t semicolon = record.find(';');
  if (semicolon == record.npos) return std::nullopt;
  std::string_view prefix = record.substr(0, semicolon), text = record.substr(semicolon + 1);
  text = text.substr(0, text.find('\n'));
  // Facility 0 is the kernel's; other records were written into /dev/kmsg by processes, which could say anything.
  const auto priority = number_at<unsigned>(prefix);
  if (!priority || (*priority >> 3) != 0) return std::nullopt;
  for (int skipped = 0; skipped < 2; ++skipped) {
    const std::size_t comma = prefix.find(',');
    if (comma == prefix.npos) return std::nullopt;
    prefix.remove_prefix(comma + 1);
  }
  const auto time = number_at<std::uint64_t>(prefix);
  if (!time) return std::nullopt;
  auto kill = out_of_memory(text);
  if (!kill) kill = fault(text);
  if (!kill) return std::nullopt;
  return LoggedKill{*time, std::move(*kill)};
}

Result<std::vector<LoggedKill>> read_kernel_log(const std::string& path) {
  const FileDescriptor log(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!log.is_open()) return fail({.code = ErrorCode::kUnreadable, .subject = path, .os_errno = errno});
  std::vector<LoggedKill> kills;
  std::array<char, kMaxRecord> record;
  for (std::size_t n = 0; n < kMaxRecords; ++n) {
    const ssize_t length = ::read(log.get(), record.data(), record.size());
    if (length < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: this record was overwritten meanwhile
    if (length <= 0) break;                                          // EAGAIN: that was the last one
    if (auto kill = parse_kernel_record({record.data(), static_cast<std::size_t>(length)})) {
      if (kills.size() == kMaxKills) kills.erase(kills.begin());
      kills.push_back(std::move(*kill));
    }
  }
  return kills;
}

}  // namespace rankstacks::target
