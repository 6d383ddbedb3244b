#include "analyzers/whole_hosts.h"

#include <map>
#include <string_view>

#include <fmt/format.h>

#include "model/host_set.h"

namespace rankstacks::analyzers {

WholeHosts::WholeHosts(const JobSnapshot& job) : job_(job) {
  std::map<std::string_view, std::size_t> hosts;
  host_of_.reserve(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    const bool as_before = r > 0 && rank.host == job.ranks[r - 1].host;
    host_of_.push_back(as_before ? host_of_.back() : hosts.try_emplace(rank.host, hosts.size()).first->second);
    ranks_on_.resize(hosts.size());
    if (rank.kind == RankKind::kRank && ++ranks_on_[host_of_.back()] > 1) any_has_several_ = true;
  }
}

std::string WholeHosts::describe(const std::vector<std::size_t>& ranks) const {
  if (!any_has_several_ || ranks.size() < 2) return "";
  std::map<std::size_t, std::size_t> count, first;  // by host
  for (const std::size_t r : ranks) {
    if (job_.ranks[r].kind != RankKind::kRank) return "";
    ++count[host_of_[r]];
    first.try_emplace(host_of_[r], r);
  }
  if (count.size() == ranks_on_.size()) return "";
  std::vector<std::string> names;
  for (const auto& [host, seen] : count) {
    if (seen != ranks_on_[host]) return "";
    names.push_back(job_.ranks[first[host]].host);
  }
  return fmt::format("all ranks of {}", format_host_set(std::move(names), 4));
}

}  // namespace rankstacks::analyzers
