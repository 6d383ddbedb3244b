#include "analyzers/recorded_messages.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace rankstacks::analyzers {
namespace {

std::vector<RecordedStep> steps_of(const RecordedGroup& group) {
  std::vector<RecordedStep> steps;
  for (const RecordedOperation& one : group.operations) {
    if (!is_pending(one)) continue;
    if (steps.empty() || !one.is_message || steps.back().is_collective || steps.back().number != one.sequence)
      steps.push_back({one.sequence, !one.is_message, {}});
    if (one.is_message) steps.back().messages.push_back(&one);
  }
  return steps;
}

std::int64_t last_message(const RecordedGroup& group) {
  std::int64_t last = 0;
  for (const RecordedOperation& one : group.operations)
    if (one.is_message) last = std::max(last, one.sequence);
  return last;
}

void go_on(Exchange& one) {
  if (!one.steps.empty() && !one.steps.front().is_collective && one.steps.front().messages.empty())
    one.steps.erase(one.steps.begin());
}

// Takes away the first messages of the rank that meet first ones of its peers. Returns whether there were any.
bool let_meet(std::size_t place, Exchanges& at) {
  bool met = false;
  std::vector<const RecordedOperation*>& messages = at[place].steps.front().messages;
  for (std::size_t m = 0; m < messages.size(); ++m) {
    const auto peer = at.find(peer_in(*messages[m]).value_or(place));
    if (peer == at.end() || peer->first == place || peer->second.steps.empty()) continue;
    std::vector<const RecordedOperation*>& its = peer->second.steps.front().messages;
    const std::string_view wanted = messages[m]->name.starts_with("send ") ? "recv " : "send ";
    const auto counterpart = std::find_if(its.begin(), its.end(), [&](const RecordedOperation* other) {
      return other->name.starts_with(wanted) && peer_in(*other) == place;
    });
    if (counterpart == its.end()) continue;
    its.erase(counterpart);
    messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(m--));
    met = true;
  }
  return met;
}

}  // namespace

std::optional<std::size_t> peer_in(const RecordedOperation& message) {
  const std::size_t arrow = message.name.find(message.name.starts_with("send ") ? "->" : "<-");
  if (!message.is_message || arrow == std::string::npos) return std::nullopt;
  std::size_t place = 0;
  const char* const end = message.name.data() + message.name.size();
  const auto [stop, error] = std::from_chars(message.name.data() + arrow + 2, end, place);
  return error == std::errc() && stop == end ? std::optional(place) : std::nullopt;
}

Exchanges stuck_exchanges(const std::map<std::size_t, const RecordedGroup*>& groups) {
  Exchanges at;
  for (const auto& [place, group] : groups) at[place] = {group, steps_of(*group)};
  for (bool meets = true; meets;) {
    meets = false;
    for (auto& [place, one] : at)
      if (!one.steps.empty() && !one.steps.front().is_collective) meets |= let_meet(place, at);
    for (auto& [place, one] : at) go_on(one);
  }
  return at;
}

std::vector<std::size_t> peers_without(const Exchange& one, const Exchanges& at) {
  std::vector<std::size_t> all, with_fewer;
  for (const RecordedOperation* message : one.steps.front().messages) {
    const auto place = peer_in(*message);
    const auto peer = place ? at.find(*place) : at.end();
    if (peer == at.end() || peer->second.group->left_out > 0) return {};
    all.push_back(*place);
    if (last_message(*peer->second.group) < one.steps.front().number) with_fewer.push_back(*place);
  }
  return all.size() > 1 && !with_fewer.empty() ? with_fewer : all;
}

bool is_in_circle(std::size_t place, const std::map<std::size_t, std::set<std::size_t>>& needs) {
  std::set<std::size_t> reached;
  std::vector<std::size_t> left = {place};
  while (!left.empty()) {
    const auto next = needs.find(left.back());
    left.pop_back();
    if (next == needs.end()) continue;
    for (const std::size_t peer : next->second) {
      if (peer == place) return true;
      if (reached.insert(peer).second) left.push_back(peer);
    }
  }
  return false;
}

}  // namespace rankstacks::analyzers
