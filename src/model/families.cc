#include "model/families.h"

#include <algorithm>
#include <utility>

namespace rankstacks {
inline namespace model {

Families::Families(const JobSnapshot& job, const ProcessIndex& processes) {
  const std::size_t count = job.ranks.size();
  std::vector<std::pair<std::size_t, std::size_t>> pairs;  // parent, child
  parents_.first.reserve(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    const RankSnapshot& child = job.ranks[i];
    parents_.first.push_back(parents_.of_all.size());
    if (child.kind != RankKind::kChild || !child.parent) continue;
    for (const std::size_t parent : processes.find(i, *child.parent)) {
      parents_.of_all.push_back(parent);
      pairs.emplace_back(parent, i);
    }
  }
  parents_.first.push_back(parents_.of_all.size());

  std::sort(pairs.begin(), pairs.end());
  children_.first.reserve(count + 1);
  children_.of_all.reserve(pairs.size());
  for (std::size_t i = 0; i < count; ++i) {
    children_.first.push_back(children_.of_all.size());
    for (std::size_t at = children_.of_all.size(); at < pairs.size() && pairs[at].first == i; ++at)
      children_.of_all.push_back(pairs[at].second);
  }
  children_.first.push_back(children_.of_all.size());
}

}  // namespace model
}  // namespace rankstacks
