#include "known/process_titles.h"

#include <algorithm>
#include <charconv>

namespace rankstacks::known {
namespace {

using P = TitlePart;

// clang-format off
constexpr TitleRule kRules[] = {
    {"VLLM::Worker", P::kWorker, "vllm v1/executor/multiproc_executor.py: VLLM::Worker_DP0_PP1_TP0_EP0"},
    {"VLLM::EngineCore", P::kDirector, "vllm v1/engine/core.py"},
    {"VLLM::APIServer", P::kDirector, "vllm entrypoints/cli/serve.py"},
    {"VLLM::DPCoordinator", P::kDirector, "vllm v1/engine/coordinator.py"},
    {"sglang::scheduler", P::kWorker, "sglang srt/managers/scheduler.py: sglang::scheduler_DP0_TP1"},
    {"sglang::detokenizer", P::kDirector, "sglang srt/managers/detokenizer_manager.py"},
    {"sglang::data_parallel_controller", P::kDirector, "sglang srt/managers/data_parallel_controller.py"},
    {"sglang::tokenizer", P::kDirector, "sglang srt/managers/multi_tokenizer_mixin.py"},
    {"ray::IDLE", P::kSpare, "ray _private/worker.py: a worker that no task needs"},
    {"ray::DashboardAgent", P::kSpare, "ray dashboard/agent.py"},
    {"ray::RuntimeEnvAgent", P::kSpare, "ray _private/runtime_env/agent/main.py"},
    {"ray::", P::kActor, "ray _private/worker.py, core_worker: ray::Trainer.train"},
};
// clang-format on

constexpr std::string_view kFamilyEnd = "::";

// "TP1" -> {"TP", 1}
std::optional<std::pair<std::string, int>> axis_of(std::string_view word) {
  const std::size_t digits = word.find_first_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return std::nullopt;
  const std::string_view name = word.substr(0, digits);
  if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) return std::nullopt;
  constexpr int kMax = 1'000'000;
  int place = 0;
  const auto [end, error] = std::from_chars(word.data() + digits, word.data() + word.size(), place);
  if (error != std::errc() || end != word.data() + word.size() || place > kMax) return std::nullopt;
  return std::pair(std::string(name), place);
}

}  // namespace

std::span<const TitleRule> title_rules() { return kRules; }

std::optional<Title> title_of(std::string_view text) {
  const auto rule = std::find_if(std::begin(kRules), std::end(kRules),
                                 [&](const TitleRule& one) { return text.starts_with(one.prefix); });
  if (rule == std::end(kRules)) return std::nullopt;
  Title title{rule->part, std::string(text.substr(0, text.find(kFamilyEnd))), {}};
  std::string_view rest = text.substr(rule->prefix.size());
  while (rule->part == P::kWorker && !rest.empty()) {
    const std::size_t end = std::min(rest.find('_'), rest.size());
    if (auto axis = axis_of(rest.substr(0, end))) title.axes.insert(std::move(*axis));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return title;
}

}  // namespace rankstacks::known
