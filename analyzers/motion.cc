#include "analyzers/motion.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "analyzers/seen_thread.h"

namespace rankstacks::analyzers {
namespace {

// A native thread that runs for microseconds at a time does nothing between its waits but check whether they are
// over. For such a thread only the place of its wait counts, not the place in between at which a sample happened to
// find it (for a poll: its query, or the loop itself).
bool is_poller(const FrameTable& frames, const ThreadSnapshot& thread, const Ran& ran) {
  constexpr double kMaxMsPerRun = 0.05;
  if (ran.runs == 0 || ran.cpu_ms > kMaxMsPerRun * static_cast<double>(ran.runs)) return false;
  return std::none_of(thread.frames.begin(), thread.frames.end(),
                      [&](FrameId id) { return frames[id].kind == FrameKind::kPython; });
}

// Whether the whole stack of this sample is known, every frame at its place. A thread that spins in the driver's calls
// is at times in an uninterruptible one (state D), where it cannot be stopped: then only its call is known, and its
// Python frames next to it, which is no other place in the program. Nor is a stack in which the interpreter evaluates
// frames that could not be read at that moment.
bool is_whole(const FrameTable& frames, const ThreadSnapshot& thread) {
  bool evaluates = false, has_python = false;
  for (const FrameId id : thread.frames) {
    has_python |= frames[id].kind == FrameKind::kPython;
    evaluates |= frames[id].function && frames[id].function->starts_with("_PyEval_EvalFrameDefault");
  }
  if (evaluates && !has_python) return false;
  return thread.stack_end == StackEnd::kComplete && !thread.frames.empty() &&
         std::none_of(thread.frames.begin(), thread.frames.end(),
                      [&](FrameId id) { return frames[id].origin == FrameOrigin::kSeparate; });
}

// What the kernel does not let the tool see of a thread (its stack beyond the innermost call) may differ between two
// samples in which nothing moved; Python's frames are known by themselves.
std::optional<ThreadSnapshot> python_frames_alone(const FrameTable& frames, const ThreadSnapshot& thread) {
  ThreadSnapshot python = thread;
  python.frames.clear();
  python.variables.clear();
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    if (frames[thread.frames[i]].kind != FrameKind::kPython) continue;
    for (const FrameVariables& variables : thread.variables)
      if (variables.frame == i) {
        FrameVariables moved = variables;
        moved.frame = python.frames.size();
        python.variables.push_back(std::move(moved));
      }
    python.frames.push_back(thread.frames[i]);
  }
  if (python.frames.empty()) return std::nullopt;
  return python;
}

// Shows the thread as another sample has found it.
void show_as(ThreadSnapshot& thread, const ThreadSnapshot& sample) {
  const std::optional<double> cpu_ms = thread.cpu_ms;
  thread = sample;
  thread.cpu_ms = cpu_ms;
}

// Fills the motion of `thread` from what several samples have seen of it, one after the other; `thread` is one of them,
// the one that the report shows.
void fold_thread(const FrameTable& frames, ThreadComparison& comparison, ThreadSnapshot& thread,
                 std::vector<const ThreadSnapshot*> seen_at, const Ran& time, double span_ms) {
  Motion motion{.samples = static_cast<int>(seen_at.size())};
  const auto waits = [](const ThreadSnapshot* t) { return t->syscall.has_value(); };
  if (is_poller(frames, thread, time) && std::any_of(seen_at.begin(), seen_at.end(), waits))
    std::erase_if(seen_at, std::not_fn(waits));
  const auto whole = [&](const ThreadSnapshot* t) { return is_whole(frames, *t); };
  std::vector<ThreadSnapshot> python;  // if the whole stack is in no sample
  const ThreadSnapshot* shown = nullptr;
  if (std::any_of(seen_at.begin(), seen_at.end(), whole)) {
    std::erase_if(seen_at, std::not_fn(whole));
    // A glance, which is no part of a report, has no state.
    if (std::find(seen_at.begin(), seen_at.end(), &thread) == seen_at.end() && seen_at.front()->state)
      shown = seen_at.front();
  } else {
    for (const ThreadSnapshot* sample : seen_at)
      if (auto alone = python_frames_alone(frames, *sample)) python.push_back(std::move(*alone));
    if (python.size() == seen_at.size())
      for (std::size_t i = 0; i < python.size(); ++i) seen_at[i] = &python[i];
  }
  const SeenThread first = comparison.see(*seen_at.front());
  std::set<std::vector<NormId>> stacks{first.stack};
  std::vector<SeenThread> all_seen{first};
  SeenThread before = first;
  motion.in_one_function = !first.python_functions.empty();
  for (std::size_t i = 1; i < seen_at.size(); ++i) {
    const SeenThread seen = comparison.see(*seen_at[i]);
    motion.left_wait |=
        before.waits && (!seen.waits || seen.place != before.place || a_counter_changed(before, seen, span_ms / 1000));
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
  if (shown != nullptr) show_as(thread, *shown);
  thread.motion = motion;
}

}  // namespace

void fold_samples(JobSnapshot& job, const std::vector<std::vector<RankSnapshot>>& later,
                  const std::function<Ran(Tid)>& ran, double span_ms) {
  if (later.empty()) return;
  // Thread ids are unique on the one machine that was sampled.
  std::unordered_map<Tid, std::vector<const ThreadSnapshot*>> again;
  for (const auto& sample : later)
    for (const RankSnapshot& rank : sample)
      for (const ThreadSnapshot& thread : rank.threads) again[thread.tid].push_back(&thread);
  ThreadComparison comparison(job.frames);
  for (RankSnapshot& rank : job.ranks) {
    for (ThreadSnapshot& thread : rank.threads) {
      const auto found = again.find(thread.tid);
      if (found == again.end()) continue;
      std::vector<const ThreadSnapshot*> seen_at = {&thread};
      seen_at.insert(seen_at.end(), found->second.begin(), found->second.end());
      fold_thread(job.frames, comparison, thread, std::move(seen_at), ran(thread.tid), span_ms);
    }
  }
}

void fold_earlier(JobSnapshot& job, const std::map<std::size_t, std::vector<RankSnapshot>>& earlier) {
  ThreadComparison comparison(job.frames);
  for (const auto& [r, samples] : earlier) {
    std::unordered_map<Tid, std::vector<const ThreadSnapshot*>> seen;
    for (const RankSnapshot& sample : samples)
      for (const ThreadSnapshot& thread : sample.threads) seen[thread.tid].push_back(&thread);
    for (ThreadSnapshot& thread : job.ranks[r].threads) {
      const auto found = seen.find(thread.tid);
      if (thread.tid == 0 || found == seen.end()) continue;
      found->second.push_back(&thread);
      fold_thread(job.frames, comparison, thread, found->second, {}, 0);
    }
  }
}

}  // namespace rankstacks::analyzers
