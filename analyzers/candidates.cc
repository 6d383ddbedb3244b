#include "analyzers/candidates.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "analyzers/local_waits.h"
#include "analyzers/verdict_words.h"

namespace rankstacks::analyzers {
namespace {

std::string would_decide(const JobSnapshot& job, const RankState& s) {
  const RankSnapshot& rank = job.ranks[s.rank];
  if (s.gpu_only) return "the core of its process";
  if (s.recorded_only) return "the stacks of its process";
  if (!s.readable) return "its stacks: see what its problems say";
  if (rank.source == Source::kDump)
    return "an attach to the job while it runs, which reads more than another tool's dump";
  if (rank.source == Source::kCore) return "an attach to the job while it runs, or the cores of all of its ranks";
  if (s.doing.activity == known::Activity::kGpuWait && !gpus_were_examined(rank)) return "--gpu";
  if (s.unknown() && rank.status != Status::kComplete) return "what is missing of its stacks: see its problems";
  return "more samples (--samples 40)";
}

// It waits for the lock of a process that is not known: another rank may have it.
bool waits_for_lock_of_another(const RankState& s) {
  return s.readable && s.doing.operation.kind == known::OperationKind::kProcessLock && !s.peer_process;
}

// It receives over a connection whose other end is not known: perhaps from a rank that does something else.
bool may_receive_from_rank(const JobSnapshot& job, const RankState& s) {
  if (!s.readable || (s.doing.activity != known::Activity::kNetworkIo && !is_at_unknown_connection(job, s)))
    return false;
  const auto& call = job.ranks[s.rank].threads[s.doing.thread].syscall;
  return !call || call->others.empty();
}

}  // namespace

std::vector<Candidate> candidates_of(const Facts& facts) {
  const JobSnapshot& job = facts.job;
  const std::vector<RankState>& states = facts.states;
  // Among ranks that no rank is seen to need, those at a place with few ranks come before those at the place with
  // most.
  std::map<std::string, std::size_t> at_place;
  for (const RankState& s : states)
    if (s.readable && !s.unrelated) ++at_place[place_key(job, s)];
  // No rank can be first if there is only one process, or if processes of several jobs are mixed.
  std::set<int> numbers;
  std::size_t compared = 0;
  for (const RankState& s : states) {
    if (s.unrelated) continue;
    ++compared;
    if (const auto number = job.ranks[s.rank].rank; number && !s.ended && !numbers.insert(*number).second) return {};
  }
  if (compared < 2) return {};
  struct Rated {
    std::tuple<bool, bool, bool, bool, bool, std::size_t, bool> rating;  // the smaller, the better
    std::size_t state;
  };
  std::vector<Rated> rated;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const RankState& s = states[i];
    if (s.unrelated || s.ended || (s.readable && s.waits() && !facts.waits.is_needed(s.rank)) ||
        (s.gpu_only && s.gpu.in_collective()) || (s.recorded_only && !s.recorded.empty()))
      continue;
    const bool is_clear = s.readable && !s.unknown();
    rated.push_back({{!facts.waits.is_needed(s.rank), s.waits(), !is_clear, s.moves(),
                      may_receive_from_rank(job, s) || waits_for_lock_of_another(s),
                      s.readable ? at_place[place_key(job, s)] : 0, s.active()},
                     i});
  }
  // If all are alike and none is needed, no candidate is better than another.
  if (rated.size() > 1 && std::all_of(rated.begin(), rated.end(), [&](const Rated& one) {
        return std::get<0>(one.rating) && one.rating == rated.front().rating;
      }))
    return {};
  std::stable_sort(rated.begin(), rated.end(), [](const Rated& a, const Rated& b) { return a.rating < b.rating; });
  if (rated.size() > kMaxCandidates) rated.resize(kMaxCandidates);
  std::vector<Candidate> candidates;
  for (const Rated& one : rated) {
    const RankState& s = states[one.state];
    std::string summary =
        s.gpu_only        ? "is known by the state of its GPU alone"
        : s.recorded_only ? "is known by its Flight Recorder alone, and waits in nothing that is there"
        : !s.readable     ? "could not be read"
        : s.in_driver()   ? "is in a call of the GPU's driver that has not returned"
        : s.unknown()     ? "does something that its frames do not show"
                          : describe_suspect(job, s, s.waits() ? Reason::kCollectiveMismatch : reason_for(s));
    candidates.push_back({s.rank, reason_for(s), would_decide(job, s), std::move(summary)});
  }
  return candidates;
}

}  // namespace rankstacks::analyzers
