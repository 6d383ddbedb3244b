#include "analyzers/partners.h"

#include <cstdint>
#include <string_view>

namespace rankstacks::analyzers {
namespace {

std::optional<int> number_of(const FrameVariables& variables, std::string_view name) {
  for (const auto& [n, value] : variables.numbers)
    if (n == name && value >= 0 && value <= INT32_MAX) return static_cast<int>(value);
  return std::nullopt;
}

}  // namespace

// Reads the arguments of c10d's functions: src and dst are ranks of the job, group_src and group_dst are indices in
// the group; tag is of a message.
void find_partners(const JobSnapshot& job, RankState& state) {
  if (!known::waits_for_ranks(state.doing.activity)) return;
  const ThreadSnapshot& thread = job.ranks[state.rank].threads[state.doing.thread];
  for (const FrameVariables& variables : thread.variables) {
    if (!state.group && variables.group) state.group = variables.group;
    const bool is_message = state.doing.activity == known::Activity::kPointToPoint;
    if (!is_message && state.doing.activity != known::Activity::kCollective) continue;
    if (is_message && !state.tag) state.tag = number_of(variables, "tag");
    std::optional<int>& partner = is_message ? state.peer : state.root;
    if (partner) continue;
    for (const std::string_view name : {"src", "dst"}) {
      if (const auto rank = number_of(variables, name)) partner = rank;
      const auto place = number_of(variables, name == "src" ? "group_src" : "group_dst");
      if (!partner && place && variables.group && static_cast<std::size_t>(*place) < variables.group->ranks.size())
        partner = variables.group->ranks[static_cast<std::size_t>(*place)];
    }
  }
}

}  // namespace rankstacks::analyzers
