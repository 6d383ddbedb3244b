#include "analyzers/watchdog_text.h"

#include <charconv>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "analyzers/sides.h"
#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

// The text between `before` and `after`; "" if it is not there.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t begin = text.find(before);
  if (begin == std::string_view::npos) return "";
  text.remove_prefix(begin + before.size());
  const std::size_t end = text.find(after);
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end);
}

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Operations whose number of elements is the same on all ranks. In the others it depends on the rank: on who is the
// root, or on how much each sends.
bool has_one_size(std::string_view operation) {
  for (const std::string_view name : {"ALLREDUCE", "ALLREDUCE_COALESCED", "ALLGATHER", "_ALLGATHER_BASE",
                                      "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE", "BROADCAST", "REDUCE"})
    if (operation == name) return true;
  return false;
}

std::string describe(const TimedOutWork& work) {
  return fmt::format("{} of {} elements", work.operation, work.elements_in);
}

}  // namespace

std::optional<TimedOutWork> timed_out_work(std::string_view text) {
  const std::string_view fields = between(text, "WorkNCCL(", ")");
  if (fields.empty()) return std::nullopt;
  const auto sequence = number_of(between(fields, "SeqNum=", ","));
  const std::string_view operation = between(fields, "OpType=", ",");
  if (!sequence || operation.empty()) return std::nullopt;
  TimedOutWork work;
  work.sequence = *sequence;
  work.operation = operation;
  work.elements_in = number_of(between(fields, "NumelIn=", ",")).value_or(0);
  work.elements_out = number_of(between(fields, "NumelOut=", ",")).value_or(0);
  work.group = between(text, "PG GUID ", " Rank ");
  return work;
}

bool says_other_size(std::string_view text) {
  return contains(text, "message truncated") || contains(text, "mismatch in collective sizes");
}

std::optional<Deadlock> explain_by_watchdogs(const JobSnapshot& job, const std::vector<RankState>& states) {
  using What = std::pair<std::string, std::int64_t>;  // the operation, and its size where all ranks have one
  std::map<std::pair<std::string, std::int64_t>, std::map<What, Side>> named;
  std::map<What, std::string> words;
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
      if (!work) continue;
      const What what{work->operation, has_one_size(work->operation) ? work->elements_in : 0};
      auto& members = named[{work->group, work->sequence}][what];
      if (members.empty() || members.back() != i) members.push_back(i);
      words.emplace(what, describe(*work));
    }
  }
  for (const auto& [number, sides] : named) {
    if (sides.size() != 2) continue;
    const auto& [a, a_ranks] = *sides.begin();
    const auto& [b, b_ranks] = *sides.rbegin();
    return accuse_smaller_side(job, states,
                               fmt::format("by their watchdogs operation {} of group {}", number.second, number.first),
                               {a_ranks, words[a]}, {b_ranks, words[b]});
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
