#include "target/run_time.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <charconv>

#include "target/proc.h"

namespace rankstacks::target {
namespace {

constexpr std::size_t kShareKeptOpen = 8;
std::atomic<std::size_t> kept_open{0};

std::size_t most_kept_open() {
  rlimit files{};
  return getrlimit(RLIMIT_NOFILE, &files) == 0 ? static_cast<std::size_t>(files.rlim_cur) / kShareKeptOpen : 0;
}

}  // namespace

std::optional<RunTime> parse_schedstat(std::string_view text) {
  std::uint64_t fields[3] = {};
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (std::uint64_t& field : fields) {
    while (at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, field);
    if (error != std::errc()) return std::nullopt;
    at = next;
  }
  return RunTime{static_cast<double>(fields[0]) / 1e6, static_cast<std::int64_t>(fields[2]),
                 static_cast<double>(fields[1]) / 1e6};
}

std::optional<RunTime> run_time_of(Pid pid, Tid tid) {
  const auto text = proc::read_file(fmt::format("/proc/{}/task/{}/schedstat", pid, tid));
  return text ? parse_schedstat(*text) : std::nullopt;
}

std::shared_ptr<const FileDescriptor> open_schedstat(int directory, const char* path) {
  const auto give_back = [](const FileDescriptor* file) {
    delete file;
    --kept_open;
  };
  static const std::size_t most = most_kept_open();
  if (++kept_open <= most) {
    FileDescriptor file(openat(directory, path, O_RDONLY | O_CLOEXEC));
    if (file.is_open()) return {new FileDescriptor(std::move(file)), give_back};
  }
  --kept_open;
  return nullptr;
}

std::optional<RunTime> read_schedstat(const FileDescriptor& schedstat) {
  std::array<char, 80> text;
  const ssize_t size = ::pread(schedstat.get(), text.data(), text.size(), 0);
  return size <= 0 ? std::nullopt : parse_schedstat({text.data(), static_cast<std::size_t>(size)});
}

}  // namespace rankstacks::target
