#include "analyzers/set_up_stores.h"

#include <fmt/format.h>

#include "analyzers/activity_rules.h"
#include "analyzers/roles.h"
#include "analyzers/sides.h"

namespace rankstacks::analyzers {
namespace {

enum class Step { kNone, kStore, kConnects };

// In which step of a communicator's set-up the rank is.
Step step_of(const WaitingJob& waiting, std::size_t i) {
  const RankState& s = waiting.states[i];
  const ThreadSnapshot& thread = waiting.job.ranks[s.rank].threads[s.doing.thread];
  bool in_store = false, sets_up = false;
  for (std::size_t f = 0; f <= s.doing.frame && f < thread.frames.size(); ++f) {
    const known::ActivityRule* rule = activity_rule_of(waiting.job.frames[thread.frames[f]]);
    if (rule == nullptr) continue;
    in_store |= rule->activity == known::Activity::kStoreWait;
    sets_up |= rule->operation.kind == known::OperationKind::kSetUp;
  }
  return !sets_up ? Step::kNone : in_store ? Step::kStore : Step::kConnects;
}

}  // namespace

std::optional<Deadlock> without_the_others_store(const WaitingJob& waiting) {
  std::vector<std::size_t> in_store, connecting;
  const std::vector<std::size_t> members = waiting.all_members();
  for (const std::size_t i : members) {
    const RankState& s = waiting.states[i];
    // The store's keys are those of a group: another group's are not waited for here.
    if (!s.doing.by_frame || s.doing.activity != known::Activity::kCollective || s.peer || !s.group ||
        s.group->name != waiting.states[members.front()].group->name)
      return std::nullopt;
    switch (step_of(waiting, i)) {
      case Step::kNone: return std::nullopt;
      case Step::kStore: in_store.push_back(i); break;
      case Step::kConnects: connecting.push_back(i); break;
    }
  }
  if (in_store.empty() || connecting.empty() || in_store.size() > connecting.size()) return std::nullopt;
  Deadlock found = waiting.accuse(in_store, Reason::kStoreWait, kByPlace);
  found.may_be_a_step = true;
  found.explanation =
      fmt::format("{}, and {} found in the store what it takes to connect",
                  describe_side(waiting.job, waiting.states, connecting), connecting.size() == 1 ? "has" : "have");
  return found;
}

std::optional<Deadlock> before_their_set_up(const WaitingJob& waiting) {
  std::vector<std::size_t> before, others;
  for (const std::size_t i : waiting.all_members()) {
    const RankState& s = waiting.states[i];
    const bool uses_nccl = has_nccl(waiting.facts.roles[s.rank]);
    if (waiting.in_store(i) && !uses_nccl) before.push_back(i);
    else if (uses_nccl && (s.doing.activity == known::Activity::kGpuWait || s.known_from_gpu)) others.push_back(i);
    else return std::nullopt;
  }
  if (before.empty() || before.size() > others.size()) return std::nullopt;
  Deadlock found = waiting.accuse(before, Reason::kStoreWait, kByPlace);
  found.may_be_a_step = true;
  found.explanation =
      fmt::format("{}, and {} has not set up NCCL yet", describe_side(waiting.job, waiting.states, others),
                  name_side(waiting.job, waiting.states, before));
  return found;
}

}  // namespace rankstacks::analyzers
