#include "analyzers/whole_hosts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "model/host_set.h"

namespace rankstacks::analyzers {

WholeHosts::WholeHosts(const JobSnapshot& job) : job_(job) {
  std::map<std::string_view, std::size_t> hosts;
  std::set<int> numbers;
  std::optional<int> world;
  host_of_.assign(job.ranks.size(), kNoHost);
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank) continue;
    if (rank.rank) numbers.insert(*rank.rank);
    if (rank.world_size) world = rank.world_size;
    const bool as_before = r > 0 && host_of_[r - 1] != kNoHost && rank.host == job.ranks[r - 1].host;
    host_of_[r] = as_before ? host_of_[r - 1] : hosts.try_emplace(rank.host, hosts.size()).first->second;
    ranks_on_.resize(hosts.size());
    ++ranks_on_[host_of_[r]];
  }
  // Ranks that were not captured may be anywhere.
  const bool complete = world && numbers.size() == static_cast<std::size_t>(*world);
  const bool any_has_several = std::any_of(ranks_on_.begin(), ranks_on_.end(), [](std::size_t n) { return n > 1; });
  if (!complete || !any_has_several || hosts.contains("unknown") || hosts.contains("")) ranks_on_.clear();
}

std::string WholeHosts::describe(std::vector<std::size_t> ranks) const {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (ranks_on_.empty() || ranks.size() < 2) return "";
  std::map<std::size_t, std::vector<std::size_t>> by_host;
  for (const std::size_t r : ranks) {
    if (host_of_[r] == kNoHost) return "";
    by_host[host_of_[r]].push_back(r);
  }
  if (by_host.size() == ranks_on_.size()) return "";
  std::vector<std::string> names;
  for (const auto& [host, on_it] : by_host) {
    if (on_it.size() != ranks_on_[host]) return "";
    names.push_back(job_.ranks[on_it.front()].host);
  }
  return fmt::format("all ranks of {}", format_host_set(std::move(names), 4));
}

}  // namespace rankstacks::analyzers
