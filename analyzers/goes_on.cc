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

// A thread that gives its processor back at once does not lack one, however often it is ready to run: it polls.
bool lacks_processor(const RankSnapshot& rank) {
  constexpr double kLeastPart = 0.1;  // of the time between the samples
  constexpr double kShortTurn = 0.1;  // ms on a processor; where many threads want one, turns of 0.5 ms are usual
  return std::ranges::any_of(rank.threads, [](const ThreadSnapshot& thread) {
    if (thread.state != 'R') return false;
    const auto& motion = thread.motion;
    return !motion || (!motion->moved && motion->cpu_ms < kLeastPart * motion->span_ms &&
                       motion->cpu_ms >= kShortTurn * static_cast<double>(motion->runs));
  });
}

bool lacks_processor(const JobSnapshot& job, const Suspect& suspect) {
  return std::ranges::any_of(suspect.evidence, [&](const Evidence& e) { return lacks_processor(job.ranks[e.rank]); });
}

// Whoever polls takes processor time, and gets nowhere.
bool gets_further(const JobSnapshot& job, const RankActivity& activity) {
  const auto& motion = job.ranks[activity.evidence.rank].threads[activity.evidence.thread].motion;
  return motion && (motion->moved || motion->counted || motion->left_wait);
}

bool any_lacks_processor(const JobSnapshot& job) {
  return std::ranges::any_of(job.ranks, [](const RankSnapshot& rank) { return lacks_processor(rank); });
}

}  // namespace

bool some_own_thread_wakes(const JobSnapshot& job, const Analysis& analysis) {
  constexpr double kRunsPerSecond = 20;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (std::size_t t = 0; t < job.ranks[r].threads.size(); ++t) {
      const auto& motion = job.ranks[r].threads[t].motion;
      const known::Role role = analysis.roles[r][t];
      const bool own = role == known::Role::kMain || role == known::Role::kPython || role == known::Role::kNative;
      if (own && motion && static_cast<double>(motion->runs) * 1000 > kRunsPerSecond * motion->span_ms) return true;
    }
  return false;
}

GoesOn goes_on(const JobSnapshot& job, const Analysis& analysis) {
  switch (analysis.verdict.status) {
    case VerdictStatus::kHealthy: return analysis.verdict.doubt == Doubt::kPassedBy ? GoesOn::kNotKnown : GoesOn::kYes;
    case VerdictStatus::kUndecided: return GoesOn::kNotKnown;
    case VerdictStatus::kSymmetric:
      return any_lacks_processor(job) || some_own_thread_wakes(job, analysis) ? GoesOn::kNotKnown : GoesOn::kNo;
    default: break;
  }
  const auto& suspects = analysis.verdict.suspects;
  if (suspects.empty()) return GoesOn::kNo;
  if (std::ranges::all_of(suspects, [&](const Suspect& s) { return gets_on(job, analysis, s); })) return GoesOn::kYes;
  const bool all_may = std::ranges::all_of(
      suspects, [&](const Suspect& s) { return gets_on(job, analysis, s) || lacks_processor(job, s); });
  return all_may ? GoesOn::kNotKnown : GoesOn::kNo;
}

std::optional<std::string> standing_places(const JobSnapshot& job, const Analysis& analysis) {
  if (any_lacks_processor(job)) return std::nullopt;
  std::string places;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (job.ranks[r].kind != RankKind::kRank) continue;
    const auto& activity = analysis.activities[r];
    if (!activity || gets_further(job, *activity)) return std::nullopt;
    places += activity->summary + '\n';
  }
  return places;
}

}  // namespace rankstacks::analyzers
