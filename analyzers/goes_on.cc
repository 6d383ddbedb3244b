#include "analyzers/goes_on.h"

#include <algorithm>

namespace rankstacks::analyzers {
namespace {

bool gets_on(const JobSnapshot& job, const Analysis& analysis, const Suspect& suspect) {
  if (suspect.rank >= job.ranks.size()) return false;
  switch (suspect.reason) {
    case Reason::kCheckpointIo:
    case Reason::kFileIo:
    case Reason::kCompiling:
    case Reason::kDataLoading: break;
    default: return false;
  }
  const auto& activity = analysis.activities[suspect.rank];
  return activity && activity->moves.value_or(false);
}

bool lacks_processor(const JobSnapshot& job, const Suspect& suspect) {
  constexpr double kLeastPart = 0.05;  // of the time between the samples
  return std::any_of(suspect.evidence.begin(), suspect.evidence.end(), [&](const Evidence& e) {
    const ThreadSnapshot& thread = job.ranks[e.rank].threads[e.thread];
    const auto& motion = thread.motion;
    return thread.state == 'R' && (!motion || (!motion->moved && motion->cpu_ms < kLeastPart * motion->span_ms));
  });
}

}  // namespace

GoesOn goes_on(const JobSnapshot& job, const Analysis& analysis) {
  switch (analysis.verdict.status) {
    case VerdictStatus::kHealthy: return GoesOn::kYes;
    case VerdictStatus::kUndecided: return GoesOn::kNotKnown;
    default: break;
  }
  const auto& suspects = analysis.verdict.suspects;
  if (suspects.empty()) return GoesOn::kNo;
  if (std::ranges::all_of(suspects, [&](const Suspect& s) { return gets_on(job, analysis, s); })) return GoesOn::kYes;
  const bool all_may = std::ranges::all_of(
      suspects, [&](const Suspect& s) { return gets_on(job, analysis, s) || lacks_processor(job, s); });
  return all_may ? GoesOn::kNotKnown : GoesOn::kNo;
}

}  // namespace rankstacks::analyzers
