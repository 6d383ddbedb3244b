#include "target/process_id.h"

#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "target/proc.h"

namespace rankstacks::target {
namespace {

Error gone(Pid pid, const char* what) {
  return {.code = ErrorCode::kGone, .subject = fmt::format("pid {}", pid), .what = what};
}

// The link of a namespace, "pid:[4026531836]".
std::optional<std::uint64_t> namespace_at(const std::string& path) {
  const auto link = proc::read_link(path);
  constexpr std::string_view kBefore = "pid:[";
  if (!link || !link->starts_with(kBefore)) return std::nullopt;
  std::uint64_t inode = 0;
  const char* end = link->data() + link->size();
  const auto [at, error] = std::from_chars(link->data() + kBefore.size(), end, inode);
  if (error != std::errc() || at == end || *at != ']') return std::nullopt;
  return inode;
}

}  // namespace

Result<ProcessId> ProcessId::of(Pid pid) {
  const auto stat = proc::stat_of(pid);
  if (!stat) return fail(gone(pid, "it has ended"));
  return ProcessId{pid, stat->start_ticks};
}

Result<void> ProcessId::check() const {
  const auto stat = proc::stat_of(pid);
  if (!stat) return fail(gone(pid, "it has ended"));
  if (stat->start_ticks != start_ticks)
    return fail(gone(pid, "it has ended, and its pid belongs to another process now"));
  return {};
}

std::optional<PidSpace> own_pid_space() {
  const auto boot = proc::read_file("/proc/sys/kernel/random/boot_id", 64);
  const auto space = namespace_at("/proc/self/ns/pid");
  if (!boot || !space) return std::nullopt;
  const std::string id = boot->substr(0, boot->find('\n'));
  if (id.empty()) return std::nullopt;
  return PidSpace{id, *space};
}

std::optional<NamespacedPid> namespaced_pid_of(Pid pid) {
  const auto space = namespace_at(fmt::format("/proc/{}/ns/pid", pid));
  if (!space) return std::nullopt;
  return NamespacedPid{*space, proc::own_pid_of(pid)};
}

}  // namespace rankstacks::target
