#include "diff/movement.h"

#include <algorithm>

namespace rankstacks::diff {
namespace {

using analyzers::SeenThread;

// The kernel counts in ticks of 10 ms, and a sample itself may cost a thread a part of one.
constexpr double kLeastRunMs = 20;

bool is_whole(const ThreadSnapshot& thread) {
  return thread.stack_end == StackEnd::kComplete || thread.stack_end == StackEnd::kDepthLimit;
}

// A stack that ended early lacks outer frames, which says nothing about where the thread is: two frames have to agree,
// as for clusters.
bool agree(const std::vector<analyzers::NormId>& a, bool a_is_whole, const std::vector<analyzers::NormId>& b,
           bool b_is_whole) {
  constexpr std::size_t kLeastFrames = 2;
  if (a == b) return true;
  const auto begins_with = [](const auto& longer, const auto& shorter) {
    return shorter.size() >= kLeastFrames && shorter.size() < longer.size() &&
           std::equal(shorter.begin(), shorter.end(), longer.begin());
  };
  return (!a_is_whole && begins_with(b, a)) || (!b_is_whole && begins_with(a, b));
}

bool moved_between_samples(const ThreadSnapshot& thread) {
  return thread.motion && (thread.motion->moved || thread.motion->counted || thread.motion->left_wait);
}

std::vector<Counter> changed_counters(const SeenThread& old, const SeenThread& now) {
  std::vector<Counter> changed;
  if (old.counters.size() != now.counters.size()) return changed;
  for (std::size_t i = 0; i < old.counters.size(); ++i) {
    const auto& [name, before] = old.counters[i];
    const auto& [same_name, after] = now.counters[i];
    if (name == same_name && before != after) changed.push_back({name, before, after});
  }
  return changed;
}

// Python frames alone, where one of the reports has no others (py-spy without --native).
bool has_native_frames(const FrameTable& frames, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(),
                     [&](FrameId id) { return frames[id].kind == FrameKind::kNative; });
}

}  // namespace

ThreadChange thread_change(const Sides& sides, const ProcessPair& process, const ThreadPair& pair,
                           const SeenThread& old, const SeenThread& now, double seconds) {
  const ThreadSnapshot& before = sides.old.job.ranks[process.old].threads[pair.old];
  const ThreadSnapshot& after = sides.now.job.ranks[process.now].threads[pair.now];
  ThreadChange change{pair, Movement::kUnknown, {}, {}, {}};
  const bool one_process = process.match == Match::kProcess;
  if (one_process && before.cpu_ms && after.cpu_ms) change.ran_ms = std::max(0.0, *after.cpu_ms - *before.cpu_ms);
  const FrameTable& frames = sides.now.job.frames;
  const bool comparable = has_native_frames(frames, before) == has_native_frames(frames, after);
  const bool same_place = comparable ? agree(old.place, is_whole(before), now.place, is_whole(after))
                                     : old.python_functions == now.python_functions;
  if (before.frames.empty() || after.frames.empty() || (!comparable && old.python_functions.empty())) return change;
  if (!one_process) {
    change.movement = same_place ? Movement::kSamePlace : Movement::kElsewhere;
    return change;
  }
  if (same_place) change.counters = changed_counters(old, now);
  if (!same_place) change.moved_by = MovedBy::kPlace;
  else if (!change.counters.empty() && (seconds <= 0 || analyzers::a_counter_changed(old, now, seconds)))
    change.moved_by = MovedBy::kCounter;
  else if (moved_between_samples(before) || moved_between_samples(after)) change.moved_by = MovedBy::kSamples;
  change.movement = change.moved_by                            ? Movement::kMoved
                    : change.ran_ms.value_or(0) >= kLeastRunMs ? Movement::kRan
                                                               : Movement::kStood;
  return change;
}

Movement movement_of(const Sides& sides, const ProcessChange& change) {
  const auto& activity = sides.now.analysis.activities[change.pair.now];
  const auto weight = [](Movement movement) {
    switch (movement) {
      case Movement::kMoved:
      case Movement::kElsewhere: return 3;
      case Movement::kRan: return 2;
      case Movement::kStood:
      case Movement::kSamePlace: return 1;
      case Movement::kUnknown: break;
    }
    return 0;
  };
  Movement most = Movement::kUnknown;
  for (const ThreadChange& thread : change.threads) {
    const bool is_main = thread.pair.now == 0 && thread.pair.old == 0;
    const bool shows_activity =
        activity && activity->evidence.rank == change.pair.now && activity->evidence.thread == thread.pair.now;
    if ((is_main || shows_activity) && weight(thread.movement) > weight(most)) most = thread.movement;
  }
  return most;
}

}  // namespace rankstacks::diff
