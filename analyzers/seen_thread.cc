#include "analyzers/seen_thread.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "analyzers/names.h"
#include "analyzers/place.h"
#include "known/counter_names.h"

namespace rankstacks::analyzers {
namespace {

// A loop that does some work takes longer for each round: a counter that increases too fast belongs to a loop that
// does nothing else.
constexpr double kMaxRoundsPerSecond = 20'000;

bool is_of_flag(std::int64_t value) { return value == 0 || value == 1; }

bool changed_at_pace_of_work(std::int64_t before, std::int64_t after, double seconds) {
  const double rounds = static_cast<double>(after) - static_cast<double>(before);
  return rounds != 0 && std::abs(rounds) <= 1 + kMaxRoundsPerSecond * seconds;
}

// Whether `changed` holds for the values of one of the counters.
bool any_counter(const SeenThread& before, const SeenThread& after,
                 const std::function<bool(std::int64_t before, std::int64_t after)>& changed) {
  if (before.counters.size() != after.counters.size()) return false;
  for (std::size_t i = 0; i < before.counters.size(); ++i)
    if (changed(before.counters[i].second, after.counters[i].second)) return true;
  return false;
}

}  // namespace

SeenThread ThreadComparison::see(const ThreadSnapshot& thread) {
  SeenThread seen;
  const Wait found = wait_of(thread);
  const std::size_t queue = queue_wait_of(thread);
  const std::size_t wait = std::max(found.frames, queue);
  seen.waits = found.for_ranks;
  seen.reads_queue = queue > 0 && thread.syscall && thread.syscall->name == "read";
  for (const StackItem& item : normalized_stack(thread, normalized_)) {
    seen.stack.push_back(item.norm);
    if (const Frame& frame = frames_[thread.frames[item.index]]; frame.kind == FrameKind::kPython)
      seen.python_functions.push_back(frame.function.value_or("") + '|' + frame.file.value_or(""));
    if (item.index < wait) continue;
    seen.place.push_back(item.norm);
    const Frame& frame = frames_[thread.frames[item.index]];
    if (frame.kind == FrameKind::kPython)
      seen.functions.push_back(frame.function.value_or("") + '|' + frame.file.value_or(""));
    else seen.functions.push_back(without_suffixes(frame.function.value_or("")));
  }
  for (const FrameVariables& variables : thread.variables) {
    if (variables.frame < wait) continue;
    const Frame& frame = frames_[thread.frames[variables.frame]];
    for (const auto& [name, value] : variables.numbers)
      if (known::is_position_name(name) && !known::is_counter_name(name))
        seen.positions[frame.function.value_or("") + '|' + frame.file.value_or("") + '|' + name] = value;
      else seen.counters.emplace_back(name, value);
  }
  return seen;
}

// A process that takes from a multiprocessing queue waits for its lock, and then for an item: if it has come from one
// to the other, another process has taken an item. But a get with a timeout goes from one to the other by itself (it
// polls instead of reading), so that a change within it says nothing. The number of frames up to the queue's function;
// 0: it is in none.
std::size_t ThreadComparison::queue_wait_of(const ThreadSnapshot& thread) const {
  for (std::size_t i = 0; i < thread.frames.size(); ++i)
    if (is_place(frames_[thread.frames[i]], known::Place::kProcessQueueWait)) return i + 1;
  return 0;
}

// A wait for other ranks, or for the GPU: the driver spins through functions of its own.
ThreadComparison::Wait ThreadComparison::wait_of(const ThreadSnapshot& thread) {
  const std::size_t own = own_frames(frames_, thread);
  Wait wait;
  for (std::size_t i = 0; i < own; ++i) {
    const Frame& frame = frames_[thread.frames[i]];
    const known::ActivityRule* rule = rules_.of(frames_, thread.frames[i]);
    const bool for_ranks = rule != nullptr && known::waits_for_ranks(rule->activity);
    if (for_ranks || (rule != nullptr && rule->activity == known::Activity::kGpuWait)) {
      wait.frames = i + 1;
      wait.for_ranks |= for_ranks;
    } else if (wait.frames > 0 && frame.kind == FrameKind::kPython) {
      break;
    }
  }
  return wait;
}

bool a_counter_changed(const SeenThread& before, const SeenThread& after, double seconds) {
  return any_counter(before, after, [&](auto was, auto is) { return changed_at_pace_of_work(was, is, seconds); });
}

bool counted_on(const SeenThread& before, const SeenThread& after, double seconds) {
  return any_counter(before, after, [&](auto was, auto is) {
    return changed_at_pace_of_work(was, is, seconds) && !(is_of_flag(was) && is_of_flag(is));
  });
}

bool positions_went_on(const std::vector<SeenThread>& samples, double seconds) {
  constexpr std::size_t kEnough = 4;
  if (samples.size() < kEnough) return false;
  return std::any_of(samples.front().positions.begin(), samples.front().positions.end(), [&](const auto& position) {
    std::int64_t last = position.second, most = position.second, least = position.second;
    bool rises = true, falls = true;
    for (const SeenThread& seen : samples) {
      const auto found = seen.positions.find(position.first);
      if (found == seen.positions.end()) return false;
      rises &= found->second >= last;
      falls &= found->second <= last;
      last = found->second;
      most = std::max(most, last);
      least = std::min(least, last);
    }
    const double rounds = static_cast<double>(most) - static_cast<double>(least);
    return rises != falls && !(is_of_flag(least) && is_of_flag(most)) && rounds <= 1 + kMaxRoundsPerSecond * seconds;
  });
}

}  // namespace rankstacks::analyzers
