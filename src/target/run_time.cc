#include "target/run_time.h"

#include <fmt/format.h>
#include <charconv>

#include "target/proc.h"

namespace rankstacks::target {

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

}  // namespace rankstacks::target
