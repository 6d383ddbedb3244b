#include "report/problem_groups.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace rankstacks::report {
namespace {

// Messages begin with it: "pid 20011: cannot be attached to".
std::string pid_prefix(const RankSnapshot& rank) { return fmt::format("pid {}: ", rank.pid); }

std::string without_pid(const RankSnapshot& rank, const std::string& message) {
  const std::string prefix = pid_prefix(rank);
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

// Hints name it in commands: "rankstacks doctor --pids 20011".
std::string hint_without_pid(const RankSnapshot& rank, std::string hint) {
  const std::string words = fmt::format("--pids {}", rank.pid);
  const std::size_t at = hint.find(words);
  const std::size_t end = at + words.size();
  if (at == std::string::npos || (end < hint.size() && hint[end] >= '0' && hint[end] <= '9')) return hint;
  return hint.replace(at, words.size(), "--pids PID");
}

}  // namespace

std::vector<ProblemGroup> problem_groups(const JobSnapshot& job) {
  std::vector<ProblemGroup> groups;
  std::map<std::pair<std::string, std::string>, std::size_t> seen;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    for (const Problem& problem : rank.problems) {
      std::string message = without_pid(rank, problem.message);
      std::string hint = hint_without_pid(rank, problem.hint.value_or(""));
      const auto [it, is_new] = seen.try_emplace({message, hint}, groups.size());
      if (is_new) groups.push_back({&problem, problem.message, problem.hint.value_or(""), {}});
      ProblemGroup& group = groups[it->second];
      if (group.ranks.empty() || group.ranks.back() != r) group.ranks.push_back(r);
      if (group.ranks.size() == 1) continue;
      group.message = std::move(message);
      group.hint = std::move(hint);
    }
  }
  return groups;
}

}  // namespace rankstacks::report
