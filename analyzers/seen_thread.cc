#include "analyzers/seen_thread.h"

#include <cmath>

#include "analyzers/names.h"
#include "analyzers/place.h"

namespace rankstacks::analyzers {
namespace {

// A loop that does some work takes longer for each round: a counter that increases too fast belongs to a loop that
// does nothing else.
constexpr double kMaxRoundsPerSecond = 20'000;

}  // namespace

SeenThread ThreadComparison::see(const ThreadSnapshot& thread) {
  SeenThread seen;
  const Wait found = wait_of(thread);
  const std::size_t wait = found.frames;
  seen.waits = found.for_ranks;
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
  for (const FrameVariables& variables : thread.variables)
    if (variables.frame >= wait)
      for (const auto& counter : variables.numbers) seen.counters.push_back(counter);
  return seen;
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

bool counted_on(const SeenThread& before, const SeenThread& after, double seconds) {
  if (before.counters.size() != after.counters.size()) return false;
  for (std::size_t i = 0; i < before.counters.size(); ++i) {
    const double rounds =
        static_cast<double>(after.counters[i].second) - static_cast<double>(before.counters[i].second);
    if (rounds != 0 && std::abs(rounds) <= 1 + kMaxRoundsPerSecond * seconds) return true;
  }
  return false;
}

}  // namespace rankstacks::analyzers
