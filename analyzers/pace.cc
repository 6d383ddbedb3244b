#include "analyzers/pace.h"

#include "analyzers/launches.h"
#include "analyzers/own_threads.h"

namespace rankstacks {
namespace {

// In a hang gloo's threads sleep, and so does the thread that waits for them, to the microsecond: where both ran, messages came. NCCL's and MPI's
// threads run, moving or not, and a store is polled.
bool gloo_moves(const RankSnapshot& rank, const std::vector<Role>& roles, const Motion& main) {
  if (main.runs < main.looks || is_busy(main)) return false;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const auto& motion = rank.threads[t].motion;
    if (roles[t] == Role::kGlooLoop && motion && motion->runs >= motion->looks) return true;
  }
  return false;
}

// Now and then a thread that a look has stopped goes back to its wait so late that this is counted as a run between the looks.
bool ran_by_itself(const Motion& motion) {
  constexpr std::int64_t kLooksPerLateReturn = 4;
  return motion.runs > 0 && motion.runs * kLooksPerLateReturn >= motion.looks;
}

}  // namespace

bool is_busy(const Motion& motion) {
  constexpr double kShare = 0.2;
  return motion.span_ms > 0 && motion.cpu_ms >= kShare * motion.span_ms;
}

void tell_pace(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, Standing& standing) {
  const RankSnapshot& rank = job.ranks[standing.rank];
  const ThreadSnapshot* main = leading_thread(job, standing);
  if (main == nullptr || !main->motion || main->motion->looks < 2) return;
  const ThreadSnapshot& told = rank.threads[standing.doing.thread];
  std::vector<const Motion*> motions = {&*main->motion};
  if (&told != main && told.motion) motions.push_back(&*told.motion);
  if (standing.told_by_child) {
    const auto& worker = job.ranks[*standing.told_by_child].threads[standing.child_thread].motion;
    if (worker) motions.push_back(&*worker);
  }
  if (!standing.doing.by_frame && waits_for_own_threads(job, *main))
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      const Role role = roles[standing.rank][t];
      const auto& motion = rank.threads[t].motion;
      if ((role == Role::kNative || role == Role::kPython) && motion && motion->moved && !standing.inferred) motions.push_back(&*motion);
    }
  standing.left_wait = main->motion->left_wait;
  standing.pace = Pace::kStill;
  for (const Motion* motion : motions) {
    if ((motion->moved && !standing.inferred) || motion->counted) standing.pace = Pace::kMoves;
    else if (ran_by_itself(*motion) && standing.pace == Pace::kStill) standing.pace = Pace::kRuns;
    standing.busy |= is_busy(*motion);
    standing.counts |= motion->counted;
    standing.travels |= motion->travelled;
  }
  if (launches_go_on(job, rank)) standing.pace = Pace::kMoves;
  if (standing.waits() && standing.doing.activity != Activity::kStoreWait && gloo_moves(rank, roles[standing.rank], *main->motion)) standing.pace = Pace::kMoves;
}

}  // namespace rankstacks
