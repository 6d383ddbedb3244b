#include "analyzers/receiving_threads.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "analyzers/blocking_calls.h"
#include "analyzers/names.h"
#include "analyzers/own_threads.h"
#include "analyzers/place.h"
#include "analyzers/roles.h"
#include "analyzers/thread_waits.h"
#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

constexpr std::array<std::string_view, 5> kReceivingCalls = {"read", "readv", "recvfrom", "recvmsg", "recvmmsg"};

class Receptions {
 public:
  Receptions(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
             const std::vector<RankState>& states)
      : job_(job), roles_(roles), states_(states) {
    for (std::size_t i = 0; i < states.size(); ++i)
      if (!states[i].unrelated)
        by_process_.emplace(std::pair(job.ranks[states[i].rank].host, job.ranks[states[i].rank].pid), i);
  }

  // The states that this one's threads receive from; empty if its main thread does not wait for these threads, or may
  // wait for something else.
  std::set<std::size_t> of(std::size_t i) const {
    const RankState& s = states_[i];
    if (!waits_on_a_condition(s)) return {};
    const RankSnapshot& rank = job_.ranks[s.rank];
    std::set<std::size_t> from;
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      const known::Role role = roles_[s.rank][t];
      if (t == s.doing.thread || (role != known::Role::kNative && role != known::Role::kPython) ||
          is_idle(job_, rank.threads[t], role))
        continue;
      const auto source = source_of(i, rank, rank.threads[t]);
      if (!source) return {};
      from.insert(*source);
    }
    return from;
  }

 private:
  bool waits_on_a_condition(const RankState& s) const {
    if (!s.readable || s.unrelated || s.waits() || s.dead_child || s.known_from_child || s.doing.by_frame) return false;
    if (s.doing.activity != known::Activity::kUserCode && s.doing.activity != known::Activity::kUnknown) return false;
    const RankSnapshot& rank = job_.ranks[s.rank];
    const ThreadSnapshot& thread = rank.threads[s.doing.thread];
    return thread.tid == rank.pid && waits_for_own_threads(job_, thread) && !thread_wait_of(rank, s.doing.thread) &&
           std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
             const Frame& frame = job_.frames[id];
             return frame.kind == FrameKind::kNative && frame.function &&
                    public_libc_name(*frame.function).starts_with("pthread_cond_");
           });
  }

  // The only rank at the other end of what this thread reads from.
  std::optional<std::size_t> source_of(std::size_t own, const RankSnapshot& rank, const ThreadSnapshot& thread) const {
    if (!thread.syscall || !is_one_of(thread.syscall->name, kReceivingCalls)) return std::nullopt;
    std::optional<std::size_t> source;
    for (const OtherEnd& end : thread.syscall->others) {
      const auto of = by_process_.find({rank.host, end.pid});
      if (of == by_process_.end() || of->second == own || (source && *source != of->second)) return std::nullopt;
      source = of->second;
    }
    return source;
  }

  const JobSnapshot& job_;
  const std::vector<std::vector<known::Role>>& roles_;
  const std::vector<RankState>& states_;
  std::map<std::pair<std::string, Pid>, std::size_t> by_process_;
};

}  // namespace

void refine_by_receiving_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                 std::vector<RankState>& states) {
  const Receptions receptions(job, roles, states);
  std::vector<std::size_t> waiting, apart;
  std::set<std::size_t> sources;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const RankState& s = states[i];
    if (s.unrelated || !s.readable || s.waits()) continue;
    const std::set<std::size_t> from = receptions.of(i);
    (from.empty() ? apart : waiting).push_back(i);
    sources.insert(from.begin(), from.end());
  }
  if (waiting.empty() || apart.empty() ||
      !std::all_of(apart.begin(), apart.end(), [&](std::size_t i) { return sources.contains(i); }))
    return;
  for (const std::size_t i : waiting) {
    Doing& doing = states[i].doing;
    const ThreadSnapshot& thread = job.ranks[states[i].rank].threads[doing.thread];
    const auto place = deciding_frame(job, thread);
    doing.activity = known::Activity::kPeerWait;
    doing.operation = operation_of_call(known::OperationKind::kUnnamed,
                                        place ? short_function(*job.frames[thread.frames[*place]].function) : "",
                                        place ? "" : "a wait");
  }
}

}  // namespace rankstacks::analyzers
