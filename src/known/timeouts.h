// After which time of waiting a job's own watchdog ends it, as far as its command line and environment tell.
#pragma once

#include <chrono>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::known {

enum class TimeoutPlace { kVariable, kArgument };

// A variable, or an argument ("--name VALUE", "--name=VALUE"), that states the timeout of the job's process groups.
struct TimeoutRule {
  TimeoutPlace place = TimeoutPlace::kVariable;
  std::string_view name;
  double unit = 1;  // seconds
  std::string_view source;
};
std::span<const TimeoutRule> timeout_rules();

struct JobTimeout {
  std::chrono::seconds limit{};
  std::string_view name;    // of the variable or argument; "": torch's default
  std::string_view source;  // where that is documented
};

// The shortest timeout that is stated; if none is, torch's default for NCCL or for other backends. A value that is no
// positive number counts as not stated.
JobTimeout job_timeout(const std::map<std::string, std::string>& environment, const std::vector<std::string>& command,
                       bool uses_gpu);

}  // namespace rankstacks::known
