#include "analyzers/watchdog_text.h"

#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "analyzers/sides.h"
#include "analyzers/timed_out_work.h"
#include "base/text.h"
#include "known/c10d_operations.h"

namespace rankstacks::analyzers {
namespace {

std::string describe(const TimedOutWork& work) {
  return fmt::format("{} of {} elements", describe_operation(work), work.elements_in);
}

}  // namespace

bool says_other_size(std::string_view text) {
  return contains(text, "message truncated") || contains(text, "mismatch in collective sizes");
}

std::optional<Deadlock> explain_by_watchdogs(const JobSnapshot& job, const std::vector<RankState>& states) {
  using What = std::pair<std::string, std::int64_t>;  // the operation, and its size where all ranks have one
  std::map<std::pair<std::string, std::int64_t>, std::map<What, Side>> named;
  std::map<What, std::string> words;
  std::map<std::string, std::string> groups;
  Side waiting;
  bool other_size = false;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const RankState& s = states[i];
    if (s.unrelated || !s.readable || !s.waits()) continue;
    waiting.push_back(i);
    for (const ThreadSnapshot& thread : job.ranks[s.rank].threads) {
      if (!thread.exception || !thread.exception->what) continue;
      other_size |= says_other_size(*thread.exception->what);
      const auto work = timed_out_work(*thread.exception->what);
      if (!work || !work->is_collective()) continue;
      const bool has_one_size = known::c10d_operation(work->operation)->has_one_size;
      const What what{work->operation, has_one_size ? work->elements_in : 0};
      auto& members = named[{work->group, work->sequence}][what];
      if (members.empty() || members.back() != i) members.push_back(i);
      words.emplace(what, describe(*work));
      groups.emplace(work->group, describe_group(*work));
    }
  }
  for (const auto& [number, sides] : named) {
    if (sides.size() != 2) continue;
    const auto& [a, a_ranks] = *sides.begin();
    const auto& [b, b_ranks] = *sides.rbegin();
    // Two of torch's operations may be one in plain words.
    const bool alike = words[a] == words[b];
    const auto name = [&](const What& what) {
      return alike ? fmt::format("{} ({})", words[what], what.first) : words[what];
    };
    const std::string& group = groups[number.first];
    return accuse_smaller_side(
        job, states,
        fmt::format("by their watchdogs operation {}{}{}", number.second, group.empty() ? "" : " of ", group),
        {a_ranks, name(a)}, {b_ranks, name(b)});
  }
  // Which of several ranks has the other size is not in NCCL's text.
  if (other_size && waiting.size() == 2)
    return accuse_side(waiting, Reason::kCollectiveMismatch,
                       fmt::format("NCCL found a message of {} that is longer than the other rank expected: they have "
                                   "called collectives of different sizes",
                                   name_side(job, states, waiting)),
                       true);
  return std::nullopt;
}

}  // namespace rankstacks::analyzers
