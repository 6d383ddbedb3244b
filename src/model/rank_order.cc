#include "model/rank_order.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "model/process_key.h"

namespace rankstacks {
inline namespace model {

std::vector<std::size_t> rank_order(const std::vector<const RankSnapshot*>& ranks) {
  const auto own_key = [&](std::size_t i) {
    const RankSnapshot& rank = *ranks[i];
    return std::make_tuple(!rank.rank, rank.rank.value_or(0), std::cref(rank.host), rank.pid,
                           std::cref(rank.pid_space));
  };
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  // Reports are mostly read in order, or nearly so.
  const auto sort_by = [&order](const auto& is_before) {
    if (!std::is_sorted(order.begin(), order.end(), is_before)) std::stable_sort(order.begin(), order.end(), is_before);
  };
  sort_by([&](std::size_t a, std::size_t b) { return own_key(a) < own_key(b); });

  std::map<ProcessKey, std::size_t> position;  // of each rank among the ranks
  for (const std::size_t i : order)
    if (ranks[i]->kind == RankKind::kRank) position.emplace(process_key(*ranks[i]), position.size());
  std::vector<std::pair<std::size_t, bool>> families(ranks.size());  // the rank's position; whether it is a child
  for (const std::size_t i : order) {
    const RankSnapshot& rank = *ranks[i];
    const bool child = rank.kind == RankKind::kChild;
    const auto at = position.find(process_key(rank, child ? rank.parent.value_or(0) : rank.pid));
    families[i] = {at == position.end() ? position.size() : at->second, child};
  }
  sort_by([&](std::size_t a, std::size_t b) { return families[a] < families[b]; });
  return order;
}

}  // namespace model
}  // namespace rankstacks
