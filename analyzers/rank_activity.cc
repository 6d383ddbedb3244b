#include "analyzers/rank_activity.h"

#include "analyzers/names.h"
#include "analyzers/pending_operations.h"
#include "analyzers/verdict_words.h"
#include "known/c10d_operations.h"

namespace rankstacks::analyzers {
namespace {

// Servers between two requests: their loop waits for the next one.
bool is_idle(const JobSnapshot& job, const RankState& s) {
  if (s.serves) return true;
  if (s.doing.activity != known::Activity::kNetworkIo && s.doing.activity != known::Activity::kUserCode &&
      s.doing.activity != known::Activity::kPythonLock)
    return false;
  for (const FrameId id : job.ranks[s.rank].threads[s.doing.thread].frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    if (!is_place(frame, known::Place::kLoopWait)) return is_place(frame, known::Place::kServerLoop);
  }
  return false;
}

std::string kind_of(const JobSnapshot& job, const RankState& s) {
  if (reason_for(s) == Reason::kWorkerDead) return "worker-dead";
  if (s.timed_out)
    if (const known::C10dOperation* operation = known::c10d_operation(s.timed_out->operation)) {
      if (operation->kind == known::OperationKind::kMessage) return "in-p2p";
      if (operation->kind == known::OperationKind::kCollective)
        return collective_of_call(operation->type) == known::Collective::kBarrier ? "in-barrier" : "in-collective";
    }
  switch (s.doing.activity) {
    case known::Activity::kCollective:
      return s.doing.operation.collective == known::Collective::kBarrier ? "in-barrier" : "in-collective";
    case known::Activity::kPointToPoint:
    case known::Activity::kPeerWait: return "in-p2p";
    case known::Activity::kStoreWait: return "in-store-wait";
    default: break;
  }
  if (is_idle(job, s)) return "idle";
  const bool runs =
      s.progress == Progress::kUnknown ? job.ranks[s.rank].threads[s.doing.thread].state == 'R' : s.active();
  if (s.doing.activity == known::Activity::kUserCode && runs) return "computing";
  return std::string(to_string(reason_of(s.doing.activity)));
}

}  // namespace

std::vector<std::optional<RankActivity>> activities_of(const JobSnapshot& job, const std::vector<RankState>& states) {
  std::vector<std::optional<RankActivity>> activities(job.ranks.size());
  for (const RankState& s : states) {
    if (!s.readable || s.unknown()) continue;
    RankActivity& activity = activities[s.rank].emplace();
    activity.kind = kind_of(job, s);
    const ThreadSnapshot& thread = job.ranks[s.rank].threads[s.doing.thread];
    if (known::waits_for_ranks(s.doing.activity) || s.timed_out) {
      activity.operation = s.timed_out ? describe_operation(*s.timed_out) : s.doing.operation.name;
      if (s.group) activity.group = s.group->name;
      else if (s.timed_out && !s.timed_out->group_name().empty()) activity.group = s.timed_out->group_name();
      activity.peer = s.peer;
      const std::string place = describe_place(job, thread);
      activity.summary = "waits " +
                         describe_wait(s, static_cast<std::size_t>(job.ranks[s.rank].world_size.value_or(0))) +
                         (place.empty() ? "" : " (" + place + ")");
    } else {
      activity.summary = describe_suspect(job, s, reason_for(s));
    }
    if (s.progress != Progress::kUnknown) activity.moves = s.active();
    activity.evidence = {s.rank, s.doing.thread, s.doing.frame};
  }
  return activities;
}

}  // namespace rankstacks::analyzers
