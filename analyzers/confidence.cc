#include "analyzers/confidence.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace rankstacks::analyzers {
namespace {

struct Case {
  const JobSnapshot& job;
  const RankState& s;
  const Tally& tally;
};

struct Row {
  double value;
  bool (*holds)(const Case&);
};

// The base value, by how it is known what the suspect does: the first row that holds.
constexpr Row kBases[] = {
    // Its GPU is at rest, unlike the others'.
    {0.45, [](const Case& c) { return c.s.known_from_utilization || c.s.known_from_power; }},
    // Another kernel runs on it.
    {0.85, [](const Case& c) { return c.s.known_from_gpu && c.s.gpu.activity == GpuActivity::kKernel; }},
    // None does.
    {0.65, [](const Case& c) { return c.s.known_from_gpu; }},
    // A frame, a state, a dead child.
    {0.90, [](const Case& c) { return c.s.dead_child || c.s.doing.by_frame; }},
    // What is left over: its own code.
    {0.60, [](const Case& c) { return c.s.doing.activity == known::Activity::kUserCode; }},
    // The system call, a lock's owner.
    {0.75, [](const Case&) { return true; }},
};

bool goes_on(const Case& c) {
  const bool spins = c.s.known_from_gpu && !c.s.moves();  // a CPU that waits for its GPU
  if (spins) return false;
  return c.s.progress == Progress::kUnknown ? c.job.ranks[c.s.rank].threads[c.s.doing.thread].state == 'R'
                                            : c.s.active();
}

// Added to the base value: all rows that hold.
constexpr Row kChanges[] = {
    // It may come yet.
    {-0.15, goes_on},
    // Several samples saw nothing of it move.
    {+0.05, [](const Case& c) { return c.s.progress == Progress::kStill; }},
    // That the others wait is concluded from there being more of them alike.
    {-0.25, [](const Case& c) { return c.tally.inferred; }},
    // Some rank could not be judged.
    {-0.20,
     [](const Case& c) { return !c.tally.unknown.empty() || !c.tally.failed.empty() || !c.tally.gpu_only.empty(); }},
    // What another tool has printed lacks system calls and, mostly, states or one language's frames.
    {-0.15, [](const Case& c) { return c.job.ranks[c.s.rank].source == Source::kDump; }},
    // The others wait for their GPUs.
    {-0.10, [](const Case& c) { return !c.tally.waiting.empty() && c.tally.waits_for_gpu_only; }},
    // More than half of the ranks are elsewhere.
    {-0.10, [](const Case& c) { return c.tally.elsewhere.size() * 2 > c.tally.compared; }},
    // It is the only one.
    {+0.05, [](const Case& c) { return c.tally.elsewhere.size() == 1; }},
};

}  // namespace

double bounded(double confidence) { return std::round(std::clamp(confidence, 0.10, 0.97) * 100) / 100; }

double confidence_of_sink(const JobSnapshot& job, const RankState& s, const Tally& tally) {
  const Case sink{job, s, tally};
  double confidence =
      std::find_if(std::begin(kBases), std::end(kBases), [&](const Row& row) { return row.holds(sink); })->value;
  for (const Row& row : kChanges)
    if (row.holds(sink)) confidence += row.value;
  return bounded(confidence);
}

}  // namespace rankstacks::analyzers
