#include "analyzers/timed_out_work.h"

#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "known/c10d_operations.h"

namespace rankstacks::analyzers {
namespace {

constexpr std::string_view kDefaultDescription = "default_pg";

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

std::optional<std::int64_t> time_of(std::string_view text) {
  const auto time = number_of(text);
  return time && *time >= 0 ? time : std::nullopt;
}

}  // namespace

bool TimedOutWork::is_collective() const {
  const known::C10dOperation* known = known::c10d_operation(operation);
  return known != nullptr && known->kind == known::OperationKind::kCollective;
}

std::string_view TimedOutWork::group_name() const { return std::string_view(group).substr(0, group.find('(')); }

std::string_view TimedOutWork::group_description() const { return known::given_description(between(group, "(", ")")); }

std::optional<TimedOutWork> timed_out_work(std::string_view text) {
  const std::size_t begin = text.find("WorkNCCL(");
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
  work.timeout_ms = time_of(between(text.substr(begin), "Timeout(ms)=", ")"));
  work.ran_ms = time_of(between(text.substr(begin), ") ran for ", " milliseconds"));
  work.group = between(text, "PG GUID ", " Rank ");
  return work;
}

std::optional<TimedOutWork> timed_out_work_of(const RankSnapshot& rank) {
  std::optional<TimedOutWork> only;
  for (const ThreadSnapshot& thread : rank.threads) {
    if (!thread.exception || !thread.exception->what) continue;
    auto work = timed_out_work(*thread.exception->what);
    if (!work) continue;
    if (only && !only->is_same(*work)) return std::nullopt;
    only = std::move(work);
  }
  return only;
}

std::vector<int> members_of_group(const RankSnapshot& rank, const TimedOutWork& work) {
  constexpr int kMaxRanks = 1 << 17;
  if (!work.is_collective()) return {};
  if (work.group_description() == kDefaultDescription) {
    if (!rank.world_size || *rank.world_size <= 0 || *rank.world_size > kMaxRanks) return {};
    std::vector<int> all(static_cast<std::size_t>(*rank.world_size));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  const std::string_view name = work.group_name();
  if (name.empty()) return {};
  for (const ThreadSnapshot& thread : rank.threads)
    for (const FrameVariables& variables : thread.variables)
      if (variables.group && variables.group->name == name && !variables.group->ranks.empty())
        return variables.group->ranks;
  if (rank.flight_record)
    for (const RecordedGroup& group : rank.flight_record->groups)
      if (group.name == name && known::given_description(group.description) == work.group_description() &&
          !group.ranks.empty())
        return group.ranks;
  return {};
}

std::string describe_operation(const TimedOutWork& work) {
  const known::C10dOperation* operation = known::c10d_operation(work.operation);
  return operation != nullptr ? std::string(operation->words) : work.operation;
}

std::string describe_group(const TimedOutWork& work) {
  const std::string_view name = work.group_name(), description = work.group_description();
  if (description == kDefaultDescription) return fmt::format("group {}", description);
  if (name.empty()) return "";
  return description.empty() ? fmt::format("group {}", name) : fmt::format("group {} ({})", name, description);
}

std::string describe_work(const TimedOutWork& work) {
  const std::string group = describe_group(work);
  return fmt::format("{} {}{}{}", describe_operation(work), work.sequence, group.empty() ? "" : " of ", group);
}

std::string describe_timeout(const TimedOutWork& work) {
  const auto time = work.timeout_ms ? work.timeout_ms : work.ran_ms;
  if (!time) return "";
  if (*time < 1000) return fmt::format("after {} ms", *time);
  const std::int64_t seconds = *time / 1000 + (*time % 1000 >= 500 ? 1 : 0);
  constexpr std::int64_t kMinute = 60;
  if (seconds >= 2 * kMinute && seconds % kMinute == 0) return fmt::format("after {} min", seconds / kMinute);
  return fmt::format("after {} s", seconds);
}

}  // namespace rankstacks::analyzers
