#include "analyzers/confidence.h"

#include <algorithm>
#include <cmath>

namespace rankstacks {

double base_confidence(const Standing& s) {
  if (s.told_by_utilization) return 0.45;
  if (s.told_by_gpu) return s.gpu.activity == GpuActivity::kKernel ? 0.85 : 0.65;
  if (s.dead_child || s.doing.by_frame) return 0.90;
  return s.doing.activity == Activity::kUserCode ? 0.60 : 0.75;
}

double bounded(double confidence) { return std::round(std::clamp(confidence, 0.10, 0.97) * 100) / 100; }

double confidence_for(const JobSnapshot& job, const Standing& s, const Tally& tally, std::size_t ranks, double base) {
  double confidence = base;
  // A CPU that waits for its GPU may spin.
  const bool spins = s.told_by_gpu && !s.moves();
  if (!spins && (s.pace == Pace::kUnknown ? job.ranks[s.rank].threads[s.doing.thread].state == 'R' : s.active())) confidence -= 0.15;
  if (s.pace == Pace::kStill) confidence += 0.05;
  if (tally.inferred) confidence -= 0.25;
  if (!tally.unknown.empty() || !tally.failed.empty() || !tally.gpu_only.empty()) confidence -= 0.20;
  if (!tally.waiting.empty() && tally.waits_for_gpu_only) confidence -= 0.10;
  if (tally.elsewhere.size() * 2 > ranks) confidence -= 0.10;
  if (tally.elsewhere.size() == 1) confidence += 0.05;
  return bounded(confidence);
}

}  // namespace rankstacks
