#include "report/problem_groups.h"

#include <map>
#include <string>
#include <utility>

namespace rankstacks::report {

std::vector<ProblemGroup> problem_groups(const JobSnapshot& job) {
  std::vector<ProblemGroup> groups;
  std::map<std::pair<std::string, std::string>, std::size_t> seen;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (const Problem& problem : job.ranks[r].problems) {
      const auto [it, is_new] = seen.try_emplace({problem.message, problem.hint.value_or("")}, groups.size());
      if (is_new) groups.push_back({&problem, {}});
      std::vector<std::size_t>& ranks = groups[it->second].ranks;
      if (ranks.empty() || ranks.back() != r) ranks.push_back(r);
    }
  return groups;
}

}  // namespace rankstacks::report
