#include "model/rank_order.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

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
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return own_key(a) < own_key(b); });

  std::map<ProcessKey, std::size_t> position;  // of each rank among the ranks
  for (const std::size_t i : order)
    if (ranks[i]->kind == RankKind::kRank) position.emplace(process_key(*ranks[i]), position.size());
  const auto family = [&](std::size_t i) {
    const RankSnapshot& rank = *ranks[i];
    const bool child = rank.kind == RankKind::kChild;
    const auto at = position.find(process_key(rank, child ? rank.parent.value_or(0) : rank.pid));
    return std::pair(at == position.end() ? position.size() : at->second, child);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return family(a) < family(b); });
  return order;
}

}  // namespace model
}  // namespace rankstacks
