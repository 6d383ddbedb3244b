#include "analyzers/coordinates.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/text.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

constexpr std::string_view kPipeline = "pp";

// The axes on which some rank has another coordinate than this one.
std::set<std::string> distinguishing_axes(const JobSnapshot& job, const Coordinates& of) {
  std::set<std::string> axes;
  for (const auto& [axis, place] : of.axes) {
    const bool differs = std::any_of(job.ranks.begin(), job.ranks.end(),
                                     [&, a = std::string_view(axis), p = place](const RankSnapshot& rank) {
                                       const auto other = rank.coordinates ? (*rank.coordinates)[a] : std::nullopt;
                                       return other && *other != p;
                                     });
    if (differs) axes.insert(axis);
  }
  return axes;
}

}  // namespace

std::vector<int> pipeline_stages(const JobSnapshot& job) {
  std::vector<int> stages(job.ranks.size(), kNoStage);
  std::map<int, std::size_t> sizes;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank || !rank.rank || rank.status == Status::kFailed) continue;
    const auto stage = rank.coordinates ? (*rank.coordinates)[kPipeline] : std::nullopt;
    if (!stage) return {};
    stages[r] = *stage;
    ++sizes[*stage];
  }
  if (sizes.size() < 2 || std::any_of(sizes.begin(), sizes.end(), [](const auto& stage) { return stage.second < 2; }))
    return {};
  return stages;
}

std::string describe_coordinates(const JobSnapshot& job, std::size_t rank) {
  if (!job.ranks[rank].coordinates) return "";
  const std::set<std::string> axes = distinguishing_axes(job, *job.ranks[rank].coordinates);
  if (axes.size() < 2) return "";
  std::string text;
  for (const auto& [axis, place] : job.ranks[rank].coordinates->axes)
    if (axes.contains(axis)) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis, place);
  return text;
}

std::string name_with_coordinates(const JobSnapshot& job, std::size_t rank) {
  const std::string place = describe_coordinates(job, rank);
  return fmt::format("rank {}{}", rank_label(job.ranks[rank]), place.empty() ? "" : fmt::format(" ({})", place));
}

std::string whole_stages(const JobSnapshot& job, const std::vector<std::size_t>& ranks) {
  if (ranks.empty() || !job.ranks[ranks.front()].coordinates) return "";
  const std::vector<int> stages = pipeline_stages(job);
  if (stages.empty()) return "";
  std::set<std::size_t> left(ranks.begin(), ranks.end());
  std::set<int> named, all, numbers;
  for (const std::size_t r : ranks) {
    if (r >= stages.size() || stages[r] == kNoStage) return "";
    named.insert(stages[r]);
  }
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (job.ranks[r].rank && job.ranks[r].kind == RankKind::kRank) numbers.insert(*job.ranks[r].rank);
    if (stages[r] != kNoStage) all.insert(stages[r]);
    if (named.contains(stages[r]) && left.erase(r) == 0) return "";
  }
  const auto world = job.ranks[ranks.front()].world_size;
  if (!left.empty() || named.size() == all.size() || !world || numbers.size() != static_cast<std::size_t>(*world))
    return "";
  return fmt::format("all ranks of pipeline stage{} {}", plural(named.size()),
                     format_numbers({named.begin(), named.end()}));
}

std::string coordinates_source(const JobSnapshot& job) {
  for (const RankSnapshot& rank : job.ranks)
    if (rank.coordinates) return rank.coordinates->from;
  return "";
}

}  // namespace rankstacks::analyzers
