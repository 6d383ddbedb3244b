#include "known/timeouts.h"

#include <charconv>
#include <cmath>
#include <optional>

namespace rankstacks::known {
namespace {

// clang-format off
constexpr TimeoutRule kRules[] = {
    {TimeoutPlace::kVariable, "DEEPSPEED_TIMEOUT", 60, "DeepSpeed deepspeed/constants.py: default_pg_timeout, in minutes"},
    {TimeoutPlace::kArgument, "--distributed-timeout-minutes", 60, "Megatron-LM megatron/training/arguments.py"},
    {TimeoutPlace::kArgument, "--ddp_timeout", 1, "transformers training_args.py: ddp_timeout, in seconds"},
    {TimeoutPlace::kArgument, "--comm.train_timeout_seconds", 1, "torchtitan config: Comm.train_timeout_seconds"},
    {TimeoutPlace::kArgument, "--dist-timeout", 1, "SGLang server_args.py: dist_timeout, in seconds"},
    {TimeoutPlace::kArgument, "--watchdog-timeout", 1, "SGLang server_args.py: watchdog_timeout, in seconds"},
};
// clang-format on
constexpr std::string_view kOfNccl = "pytorch ProcessGroupNCCL.hpp: kProcessGroupNCCLDefaultTimeout (2.2-)";
constexpr std::string_view kOfOthers = "pytorch c10d/Backend.hpp: kBackendDefaultTimeout";
constexpr std::chrono::seconds kDefaultOfNccl{600}, kDefaultOfOthers{1800};

std::optional<std::chrono::seconds> seconds_of(std::string_view text, double unit) {
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr double kLongest = 1e9;
  if (error != std::errc() || stop != text.data() + text.size() || !(number * unit >= 1)) return std::nullopt;
  return std::chrono::seconds(std::llround(std::min(number * unit, kLongest)));
}

std::optional<std::string_view> argument(const std::vector<std::string>& command, std::string_view name) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string_view word = command[i];
    if (word == name && i + 1 < command.size()) return command[i + 1];
    if (word.starts_with(name) && word.size() > name.size() && word[name.size()] == '=')
      return word.substr(name.size() + 1);
  }
  return std::nullopt;
}

}  // namespace

std::span<const TimeoutRule> timeout_rules() { return kRules; }

JobTimeout job_timeout(const std::map<std::string, std::string>& environment, const std::vector<std::string>& command,
                       bool uses_gpu) {
  std::optional<JobTimeout> stated;
  for (const TimeoutRule& rule : kRules) {
    std::optional<std::string_view> value;
    if (rule.place == TimeoutPlace::kArgument) value = argument(command, rule.name);
    else if (const auto found = environment.find(std::string(rule.name)); found != environment.end())
      value = found->second;
    const auto limit = value ? seconds_of(*value, rule.unit) : std::nullopt;
    if (limit && (!stated || *limit < stated->limit)) stated = JobTimeout{*limit, rule.name, rule.source};
  }
  if (stated) return *stated;
  return uses_gpu ? JobTimeout{kDefaultOfNccl, "", kOfNccl} : JobTimeout{kDefaultOfOthers, "", kOfOthers};
}

}  // namespace rankstacks::known
