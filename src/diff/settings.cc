#include "diff/settings.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "analyzers/differences.h"
#include "base/text.h"
#include "diff/environment_changes.h"
#include "report/json_words.h"
#include "report/shell_quoted.h"

namespace rankstacks::diff {
namespace {

std::string number(const std::optional<int>& value) { return value ? std::to_string(*value) : ""; }

std::string command_of(const RankSnapshot& rank) {
  std::string line;
  for (const std::string& word : rank.command) line += (line.empty() ? "" : " ") + report::shell_quoted(word);
  return line;
}

std::string python_of(const RankSnapshot& rank) {
  if (!rank.python_version) return "";
  return rank.python_version->empty() ? "unreadable" : *rank.python_version;
}

std::string coordinates_of(const RankSnapshot& rank) {
  std::string text;
  if (!rank.coordinates) return text;
  for (const auto& [axis, place] : rank.coordinates->axes)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis, place);
  return text;
}

std::string devices_of(const RankSnapshot& rank, const std::function<std::string(const GpuSnapshot&)>& value) {
  std::set<std::string> values;
  for (const GpuSnapshot& gpu : rank.gpus)
    if (const std::string one = value(gpu); !one.empty()) values.insert(one);
  return joined(values);
}

struct RankSetting {
  Setting setting;
  std::string (*value)(const RankSnapshot&);
};

constexpr RankSetting kOfRank[] = {
    {Setting::kHost, [](const RankSnapshot& rank) { return rank.host; }},
    {Setting::kStatus,
     [](const RankSnapshot& rank) { return std::string(word_of(report::kStatusWords, rank.status)); }},
    {Setting::kExecutable, [](const RankSnapshot& rank) { return rank.executable.value_or(""); }},
    {Setting::kCommand, command_of},
    {Setting::kPython, python_of},
    {Setting::kWorldSize, [](const RankSnapshot& rank) { return number(rank.world_size); }},
    {Setting::kCoordinates, coordinates_of},
    {Setting::kGpus,
     [](const RankSnapshot& rank) {
       return devices_of(rank, [](const GpuSnapshot& gpu) {
         return gpu.name.empty() ? gpu.pci : fmt::format("{} {}", gpu.pci, gpu.name);
       });
     }},
    {Setting::kGpuDriver, analyzers::gpu_driver_of},
};

// What one kind of report knows and another does not (a core has no GPUs) is no change.
bool may_differ(const RankSnapshot& old, const RankSnapshot& now, const std::string& was, const std::string& is) {
  if (was == is) return false;
  return old.source == now.source || (!was.empty() && !is.empty() && was != "unknown" && is != "unknown");
}

}  // namespace

std::vector<SettingChange> changed_settings(const Sides& sides, const std::vector<ProcessChange>& processes) {
  std::vector<SettingChange> changes;
  const auto of_job = [&](Setting setting, const std::string& was, const std::string& is) {
    if (was != is) changes.push_back({setting, was, is, {}});
  };
  of_job(Setting::kTool, sides.old.job.tool_version, sides.now.job.tool_version);
  if (sides.old.job.nccl && sides.now.job.nccl)
    of_job(Setting::kNccl, sides.old.job.nccl->version, sides.now.job.nccl->version);
  std::map<std::tuple<Setting, std::string, std::string, std::string>, std::size_t> seen;
  const auto of_rank = [&](SettingChange change, std::size_t rank) {
    const auto [at, is_new] = seen.try_emplace({change.setting, change.name, change.old, change.now}, changes.size());
    if (is_new) changes.push_back(std::move(change));
    changes[at->second].ranks.push_back(rank);
  };
  for (const RankSetting& of : kOfRank)
    for (const ProcessChange& process : processes) {
      const RankSnapshot &old = sides.old.job.ranks[process.pair.old], &now = sides.now.job.ranks[process.pair.now];
      if (now.kind != RankKind::kRank) continue;
      const std::string was = of.value(old), is = of.value(now);
      if (may_differ(old, now, was, is)) of_rank({of.setting, was, is, {}}, process.pair.now);
    }
  const std::size_t first = changes.size();
  for (const ProcessChange& process : processes) {
    const RankSnapshot &old = sides.old.job.ranks[process.pair.old], &now = sides.now.job.ranks[process.pair.now];
    if (now.kind != RankKind::kRank) continue;
    for (SettingChange& change : environment_changes(old, now)) of_rank(std::move(change), process.pair.now);
  }
  std::stable_sort(changes.begin() + static_cast<std::ptrdiff_t>(first), changes.end(),
                   [](const SettingChange& a, const SettingChange& b) {
                     return std::tie(a.setting, a.name) < std::tie(b.setting, b.name);
                   });
  return changes;
}

}  // namespace rankstacks::diff
