#include "capture/titled_ranks.h"

#include <algorithm>
#include <set>
#include <utility>

namespace rankstacks::capture {
namespace {

int place_on(const known::Title& title, const char* axis) {
  const auto it = title.axes.find(axis);
  return it == title.axes.end() ? 0 : it->second;
}

}  // namespace

std::vector<RankIdentity> ranks_of_titles(const std::vector<known::Title>& titles) {
  std::set<std::pair<int, int>> places;
  std::size_t workers = 0;
  int dp_size = 1, pp_size = 1, tp_size = 1;
  for (const known::Title& title : titles) {
    if (title.part != known::TitlePart::kWorker) continue;
    ++workers;
    places.emplace(place_on(title, "PP"), place_on(title, "TP"));
    dp_size = std::max(dp_size, place_on(title, "DP") + 1);
    pp_size = std::max(pp_size, place_on(title, "PP") + 1);
    tp_size = std::max(tp_size, place_on(title, "TP") + 1);
  }
  if (places.size() == workers && tp_size > 1) dp_size = 1;
  std::vector<RankIdentity> identities(titles.size());
  bool has_first = false;
  for (std::size_t i = 0; i < titles.size(); ++i) {
    if (titles[i].part != known::TitlePart::kWorker) continue;
    const int dp = dp_size > 1 ? place_on(titles[i], "DP") : 0;
    identities[i].rank = (dp * pp_size + place_on(titles[i], "PP")) * tp_size + place_on(titles[i], "TP");
    identities[i].world_size = dp_size * pp_size * tp_size;
    identities[i].precedence = RankIdentity::kTitle;
    has_first = has_first || identities[i].rank == 0;
  }
  for (RankIdentity& identity : identities)
    if (has_first && identity.rank) identity.local_world_size = identity.world_size;
  return identities;
}

}  // namespace rankstacks::capture
