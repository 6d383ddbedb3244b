#include "analyzers/motion.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "analyzers/activity.h"
#include "analyzers/names.h"
#include "analyzers/normalize.h"

namespace rankstacks::analyzers {
namespace {

// One sample of one thread, reduced to what is compared.
struct Seen {  // counters: in the order of the frames
  bool waits = false;
  std::vector<NormId> stack;
  std::vector<NormId> place;
  std::vector<std::string> functions;  // of Python frames there
  std::vector<std::int64_t> counters;
};

// A loop that does some work takes longer for each round: a counter that increases too fast belongs to a loop that
// does nothing else.
constexpr double kMaxRoundsPerSecond = 20'000;

// Whether a counter has increased at a pace that work has. Equal frames have the same counters; if the frames differ,
// the place does.
bool counted_on(const Seen& before, const Seen& after, double seconds) {
  if (before.counters.size() != after.counters.size()) return false;
  for (std::size_t i = 0; i < before.counters.size(); ++i) {
    const double rounds = static_cast<double>(after.counters[i]) - static_cast<double>(before.counters[i]);
    if (rounds != 0 && std::abs(rounds) <= 1 + kMaxRoundsPerSecond * seconds) return true;
  }
  return false;
}

// A native thread that runs for microseconds at a time does nothing between its waits but check whether they are
// over. For such a thread only the place of its wait counts, not the place in between at which a sample happened to
// find it (for a poll: its query, or the loop itself).
bool is_poller(const FrameTable& frames, const ThreadSnapshot& thread, const Ran& ran) {
  constexpr double kMaxMsPerRun = 0.05;
  if (ran.runs == 0 || ran.cpu_ms > kMaxMsPerRun * static_cast<double>(ran.runs)) return false;
  return std::none_of(thread.frames.begin(), thread.frames.end(),
                      [&](FrameId id) { return frames[id].kind == FrameKind::kPython; });
}

class Comparison {
 public:
  explicit Comparison(const FrameTable& frames) : frames_(frames), normalized_(frames) {}

  Seen see(const ThreadSnapshot& thread) {
    Seen seen;
    const std::size_t wait = frames_of_wait(thread);
    seen.waits = wait > 0;
    for (const StackItem& item : normalized_stack(thread, normalized_)) {
      seen.stack.push_back(item.norm);
      if (item.index < wait) continue;
      seen.place.push_back(item.norm);
      const Frame& frame = frames_[thread.frames[item.index]];
      if (frame.kind == FrameKind::kPython)
        seen.functions.push_back(frame.function.value_or("") + '|' + frame.file.value_or(""));
      else seen.functions.push_back(without_suffixes(frame.function.value_or("")));
    }
    for (const FrameVariables& variables : thread.variables)
      if (variables.frame >= wait)
        for (const auto& [name, value] : variables.numbers) seen.counters.push_back(value);
    return seen;
  }

 private:
  // The number of frames, from the innermost one, that belong to a wait for other ranks: up to the outermost one that
  // a rule names. 0 if the thread waits for none.
  std::size_t frames_of_wait(const ThreadSnapshot& thread) {
    const std::size_t own = own_frames(frames_, thread);
    std::size_t count = 0;
    for (std::size_t i = 0; i < own; ++i) {
      const Frame& frame = frames_[thread.frames[i]];
      const known::ActivityRule* rule = rules_.of(frames_, thread.frames[i]);
      if (rule != nullptr && known::waits_for_ranks(rule->activity)) count = i + 1;
      else if (count > 0 && frame.kind == FrameKind::kPython) break;
    }
    return count;
  }

  const FrameTable& frames_;
  NormalizedFrames normalized_;
  RuleCache rules_;
};

}  // namespace

void fold_samples(JobSnapshot& job, const std::vector<std::vector<RankSnapshot>>& later,
                  const std::function<Ran(Tid)>& ran, double span_ms) {
  if (later.empty()) return;
  // Thread ids are unique on the one machine that was sampled.
  std::unordered_map<Tid, std::vector<const ThreadSnapshot*>> again;
  for (const auto& sample : later)
    for (const RankSnapshot& rank : sample)
      for (const ThreadSnapshot& thread : rank.threads) again[thread.tid].push_back(&thread);
  Comparison comparison(job.frames);
  for (RankSnapshot& rank : job.ranks) {
    for (ThreadSnapshot& thread : rank.threads) {
      const auto found = again.find(thread.tid);
      if (found == again.end()) continue;
      const Ran time = ran(thread.tid);
      std::vector<const ThreadSnapshot*> seen_at = {&thread};
      seen_at.insert(seen_at.end(), found->second.begin(), found->second.end());
      Motion motion{.samples = static_cast<int>(seen_at.size())};
      const auto waits = [](const ThreadSnapshot* t) { return t->syscall.has_value(); };
      if (is_poller(job.frames, thread, time) && std::any_of(seen_at.begin(), seen_at.end(), waits))
        std::erase_if(seen_at, std::not_fn(waits));
      const Seen first = comparison.see(*seen_at.front());
      std::set<std::vector<NormId>> stacks{first.stack};
      Seen before = first;
      for (std::size_t i = 1; i < seen_at.size(); ++i) {
        const Seen seen = comparison.see(*seen_at[i]);
        motion.left_wait |=
            before.waits && (!seen.waits || seen.place != before.place || counted_on(before, seen, span_ms / 1000));
        before = seen;
        stacks.insert(seen.stack);
        motion.moved |= seen.place != first.place;
        motion.travelled |= seen.functions != first.functions;
        motion.counted |= counted_on(first, seen, span_ms / 1000);
      }
      motion.places = static_cast<int>(stacks.size());
      motion.cpu_ms = time.cpu_ms;
      motion.runs = time.runs;
      motion.span_ms = span_ms;
      thread.motion = motion;
    }
  }
}

}  // namespace rankstacks::analyzers
