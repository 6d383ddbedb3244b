#include "analyzers/motion.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "analyzers/activity.h"
#include "analyzers/names.h"
#include "analyzers/normalize.h"
#include "known/counter_names.h"

namespace rankstacks::analyzers {
namespace {

// One sample of one thread, reduced to what is compared.
struct Seen {  // counters: in the order of the frames
  bool waits = false;
  bool reads_queue = false;  // it has the lock of a multiprocessing queue, and waits for an item
  std::vector<NormId> stack;
  std::vector<NormId> place;
  std::vector<std::string> functions;         // there
  std::vector<std::string> python_functions;  // of all Python frames
  std::vector<std::int64_t> counters;
  std::map<std::string, std::int64_t> positions;  // known::is_position_name, by function and name
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

// Whether one of the positions has gone one way from sample to sample. Names of positions say less than those of
// counters: the numbers may be those of a short loop that begins again and again, so that a few samples show nothing.
bool positions_went_on(const std::vector<Seen>& samples, double seconds) {
  constexpr std::size_t kEnough = 4;
  if (samples.size() < kEnough) return false;
  return std::any_of(samples.front().positions.begin(), samples.front().positions.end(), [&](const auto& position) {
    std::int64_t last = position.second, most = position.second, least = position.second;
    bool rises = true, falls = true;
    for (const Seen& seen : samples) {
      const auto found = seen.positions.find(position.first);
      if (found == seen.positions.end()) return false;
      rises &= found->second >= last;
      falls &= found->second <= last;
      last = found->second;
      most = std::max(most, last);
      least = std::min(least, last);
    }
    const double rounds = static_cast<double>(most) - static_cast<double>(least);
    return rises != falls && rounds <= 1 + kMaxRoundsPerSecond * seconds;
  });
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
        else seen.counters.push_back(value);
    }
    return seen;
  }

 private:
  struct Wait {
    std::size_t frames = 0;  // number of frames, from the innermost one, that belong to it: up to the outermost one
                             // that a rule names; 0: it does not wait
    bool for_ranks = false;
  };

  // A wait for other ranks, or for the GPU: the driver spins through functions of its own.
  Wait wait_of(const ThreadSnapshot& thread) {
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

  // A process that takes from a multiprocessing queue waits for its lock, and then for an item: if it has come from one
  // to the other, another process has taken an item. But a get with a timeout goes from one to the other by itself (it
  // polls instead of reading), so that a change within it says nothing. The number of frames up to the queue's
  // function; 0: it is in none.
  std::size_t queue_wait_of(const ThreadSnapshot& thread) const {
    for (std::size_t i = 0; i < thread.frames.size(); ++i)
      if (is_place(frames_[thread.frames[i]], known::Place::kProcessQueueWait)) return i + 1;
    return 0;
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
      std::vector<Seen> all_seen{first};
      Seen before = first;
      motion.in_one_function = !first.python_functions.empty();
      for (std::size_t i = 1; i < seen_at.size(); ++i) {
        const Seen seen = comparison.see(*seen_at[i]);
        motion.left_wait |=
            before.waits && (!seen.waits || seen.place != before.place || counted_on(before, seen, span_ms / 1000));
        before = seen;
        stacks.insert(seen.stack);
        motion.moved |= seen.place != first.place || seen.reads_queue != first.reads_queue;
        motion.travelled |= seen.functions != first.functions;
        motion.in_one_function &= seen.python_functions == first.python_functions;
        motion.counted |= counted_on(first, seen, span_ms / 1000);
        all_seen.push_back(seen);
      }
      motion.counted |= positions_went_on(all_seen, span_ms / 1000);
      motion.places = static_cast<int>(stacks.size());
      motion.cpu_ms = time.cpu_ms;
      motion.runs = time.runs;
      motion.span_ms = span_ms;
      thread.motion = motion;
    }
  }
}

}  // namespace rankstacks::analyzers
