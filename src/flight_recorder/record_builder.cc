#include "flight_recorder/record_builder.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

namespace rankstacks::flight_recorder {
namespace {

// With fewer calls the longest time between two of them says little of the job.
constexpr std::size_t kFewestCalls = 4;

bool is_coalesced(const std::string& name) { return name == "coalesced"; }

}  // namespace

void RecordBuilder::add_group(RecordedGroup group) {
  if (record_.groups.size() < kMaxGroups) record_.groups.push_back(std::move(group));
}

void RecordBuilder::add_thread(std::uint64_t pthread_self) {
  if (record_.thread_ids.size() < kMaxThreads) record_.thread_ids.insert(pthread_self);
}

void RecordBuilder::add(RecorderEntry entry) {
  const std::size_t colon = entry.profiling_name.find(':');
  const std::string library = colon == std::string::npos ? "" : entry.profiling_name.substr(0, colon);
  // What gloo has ended is retired, and no more is said of it.
  if (library == "gloo" && entry.retired) entry.state = RecordedState::kCompleted;
  if (!find_group(entry, library)) return;
  std::string name = colon == std::string::npos ? entry.profiling_name : entry.profiling_name.substr(colon + 1);
  entries_.push_back({std::move(entry), std::move(name)});
}

bool RecordBuilder::find_group(const RecorderEntry& entry, const std::string& library) {
  if (group_of_.contains(entry.group)) return true;
  auto found = std::find_if(record_.groups.begin(), record_.groups.end(), [&](const RecordedGroup& group) {
    return group.name == entry.group_name && group.description == entry.group_description;
  });
  if (found == record_.groups.end()) {
    if (record_.groups.size() >= kMaxGroups) return false;
    record_.groups.push_back({.name = entry.group_name, .description = entry.group_description});
    found = std::prev(record_.groups.end());
  }
  if (found->library.empty()) found->library = library;
  group_of_.emplace(entry.group, static_cast<std::size_t>(found - record_.groups.begin()));
  return true;
}

// Operations of a batch have the numbers of the entry that ends it.
void RecordBuilder::take_state_of_batches() {
  const auto key = [](const Entry& e) { return std::tuple(e.entry.group, e.entry.collective, e.entry.message); };
  struct Batch {
    RecordedState state;
    bool has_operations = false;
  };
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Batch> batches;
  for (const Entry& entry : entries_)
    if (is_coalesced(entry.name)) batches[key(entry)] = {entry.entry.state};
  for (Entry& entry : entries_) {
    if (is_coalesced(entry.name)) continue;
    const auto batch = batches.find(key(entry));
    if (batch == batches.end()) continue;
    batch->second.has_operations = true;
    if (entry.entry.state == RecordedState::kScheduled) entry.entry.state = batch->second.state;
  }
  std::erase_if(entries_,
                [&](const Entry& entry) { return is_coalesced(entry.name) && batches[key(entry)].has_operations; });
}

// As a job begins there are long pauses, which say nothing of its steps: the newer half of the calls does.
void RecordBuilder::take_times() {
  constexpr double kNsPerMs = 1e6;
  std::int64_t last = 0;
  std::vector<std::int64_t> gaps;
  for (const Entry& entry : entries_) {
    const std::int64_t called = entry.entry.called_ns;
    if (called <= 0) return;
    if (last > 0) gaps.push_back(std::max<std::int64_t>(called - last, 0));
    last = std::max(last, called);
  }
  if (entries_.empty()) return;
  record_.last_call_ns = last;
  if (entries_.size() < kFewestCalls) return;
  const auto newer = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2);
  record_.longest_gap_ms = static_cast<double>(*std::max_element(newer, gaps.end())) / kNsPerMs;
}

void RecordBuilder::take_recent_calls() {
  std::vector<std::uint32_t>& calls = record_.recent_calls;
  std::pair<std::int64_t, std::int64_t> last_batch;
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && calls.size() < kMaxRecentCalls; ++entry) {
    if (entry->entry.is_message) continue;
    // Those of a batch have one number.
    const std::pair batch(entry->entry.group, entry->entry.collective);
    if (calls.empty() || batch != last_batch)
      calls.push_back(static_cast<std::uint32_t>(group_of_[entry->entry.group]));
    last_batch = batch;
  }
  std::reverse(calls.begin(), calls.end());
  if (std::equal(calls.begin() + (calls.empty() ? 0 : 1), calls.end(), calls.begin())) calls.clear();
}

// A message repeats the number of its group's last collective.
void RecordBuilder::count(const Entry& entry) {
  RecordedGroup& group = record_.groups[group_of_[entry.entry.group]];
  group.last_enqueued = std::max(group.last_enqueued.value_or(0), entry.entry.collective);
  has_messages_[entry.entry.group] |= entry.entry.is_message;
  if (entry.entry.is_message || entry.entry.state == RecordedState::kScheduled) return;
  group.last_started = std::max(group.last_started.value_or(0), entry.entry.collective);
  if (entry.entry.state == RecordedState::kCompleted)
    group.last_completed = std::max(group.last_completed.value_or(0), entry.entry.collective);
}

void RecordBuilder::keep(const std::function<void(std::size_t, RecordedOperation&)>& add_details) {
  std::map<std::int64_t, std::deque<const Entry*>> ended;
  std::map<std::int64_t, std::size_t> pending;
  for (const Entry& entry : entries_) {
    if (entry.entry.state != RecordedState::kCompleted) {
      if (++pending[entry.entry.group] > kMaxPending) ++record_.groups[group_of_[entry.entry.group]].left_out;
      continue;
    }
    auto& last = ended[entry.entry.group];
    last.push_back(&entry);
    if (last.size() > kMaxEnded) last.pop_front();
  }
  pending.clear();
  for (const Entry& entry : entries_) {
    const auto& last = ended[entry.entry.group];
    const bool kept = entry.entry.state == RecordedState::kCompleted
                          ? std::find(last.begin(), last.end(), &entry) != last.end()
                          : ++pending[entry.entry.group] <= kMaxPending;
    if (!kept) continue;
    RecordedOperation operation{.sequence = entry.entry.is_message ? entry.entry.message : entry.entry.collective,
                                .is_message = entry.entry.is_message,
                                .name = entry.name,
                                .state = entry.entry.state};
    add_details(entry.entry.index, operation);
    record_.groups[group_of_[entry.entry.group]].operations.push_back(std::move(operation));
  }
}

FlightRecord RecordBuilder::build(const std::function<void(std::size_t, RecordedOperation&)>& add_details) {
  take_times();
  take_state_of_batches();
  take_recent_calls();
  for (const Entry& entry : entries_) count(entry);
  keep(add_details);
  return std::move(record_);
}

std::optional<std::size_t> RecordBuilder::group_of_collectives(std::int64_t id) const {
  const auto group = group_of_.find(id);
  const auto messages = has_messages_.find(id);
  if (group == group_of_.end() || (messages != has_messages_.end() && messages->second)) return std::nullopt;
  return group->second;
}

}  // namespace rankstacks::flight_recorder
