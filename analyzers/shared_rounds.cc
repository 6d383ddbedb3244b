#include "analyzers/shared_rounds.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "known/counter_names.h"

namespace rankstacks::analyzers {
namespace {

using Variable = std::tuple<std::string, std::string, std::string>;  // file, function, name

// The loops' variables of one rank's own Python functions. A function that calls itself has several of a name.
std::map<Variable, std::int64_t> loop_variables(const JobSnapshot& job, const ThreadSnapshot& thread) {
  std::map<Variable, std::int64_t> found;
  std::set<Variable> twice;
  for (const FrameVariables& variables : thread.variables) {
    const Frame& frame = job.frames[thread.frames[variables.frame]];
    if (variables.loops == 0 || !is_users_code(frame)) continue;
    for (const auto& [name, value] : variables.numbers) {
      if (!known::is_position_name(name) || known::is_counter_name(name)) continue;
      Variable variable{frame.file.value_or(""), frame.function.value_or(""), name};
      if (!found.emplace(variable, value).second) twice.insert(std::move(variable));
    }
  }
  for (const Variable& variable : twice) found.erase(variable);
  return found;
}

// By file, function and variable; of a function with a loop that has no such variable, an entry without a name.
std::map<Variable, std::int64_t> rounds_of(const JobSnapshot& job, const RankState& state) {
  std::map<Variable, std::int64_t> found;
  const ThreadSnapshot* thread = leading_thread(job, state);
  if (thread == nullptr) return found;
  for (const FrameVariables& variables : thread->variables) {
    const Frame& frame = job.frames[thread->frames[variables.frame]];
    if (variables.loops == 0 || !is_users_code(frame)) continue;
    const std::string file = frame.file.value_or(""), function = frame.function.value_or("");
    bool counts = false;
    for (const auto& [name, value] : variables.numbers) {
      if (!known::is_position_name(name) && !known::is_counter_name(name)) continue;
      found.emplace(Variable{file, function, name}, value);
      counts = true;
    }
    if (!counts) found.emplace(Variable{file, function, ""}, 0);
  }
  return found;
}

}  // namespace

bool in_one_round(const JobSnapshot& job, const RankState& a, const RankState& b) {
  const auto rounds = rounds_of(job, a);
  return !rounds.empty() && rounds == rounds_of(job, b) &&
         std::none_of(rounds.begin(), rounds.end(), [](const auto& one) { return std::get<2>(one.first).empty(); });
}

bool in_different_rounds(const JobSnapshot& job, const RankState& a, const RankState& b) {
  const auto rounds = rounds_of(job, a), others = rounds_of(job, b);
  return std::any_of(rounds.begin(), rounds.end(), [&](const auto& one) {
    const auto other = others.find(one.first);
    return other != others.end() && other->second != one.second;
  });
}

std::vector<std::int64_t> shared_rounds(const JobSnapshot& job, const std::vector<RankState>& states) {
  constexpr std::size_t kFewest = 3, kRounds = 2;
  std::map<Variable, std::vector<std::pair<std::size_t, std::int64_t>>> values;  // by state
  std::size_t compared = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i].unrelated) continue;
    ++compared;
    const ThreadSnapshot* thread = states[i].readable ? leading_thread(job, states[i]) : nullptr;
    if (thread == nullptr) return {};
    for (const auto& [variable, value] : loop_variables(job, *thread)) values[variable].emplace_back(i, value);
  }
  if (compared < kFewest) return {};
  for (const auto& [variable, of_states] : values) {
    if (of_states.size() != compared) continue;
    std::set<std::int64_t> rounds;
    for (const auto& [i, value] : of_states) rounds.insert(value);
    if (rounds.size() != kRounds || *rounds.begin() + 1 != *rounds.rbegin() ||
        *rounds.begin() < static_cast<std::int64_t>(kRounds))
      continue;
    std::vector<std::int64_t> found(states.size(), 0);
    for (const auto& [i, value] : of_states) found[i] = value;
    return found;
  }
  return {};
}

}  // namespace rankstacks::analyzers
