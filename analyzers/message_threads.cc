#include "analyzers/message_threads.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analyzers/partners.h"
#include "analyzers/place.h"
#include "analyzers/training_threads.h"

namespace rankstacks::analyzers {
namespace {

class MessageThreads {
 public:
  MessageThreads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles, Activities& activities,
                 const std::vector<RankState>& states)
      : job_(job), roles_(roles), activities_(activities), states_(states) {}

  // The state of the rank that this one sends to or receives from; std::nullopt if it is in no message, or the rank is
  // not known.
  std::optional<std::size_t> peer_of(const RankState& state) const {
    if (!is_compared(state) || state.doing.activity != known::Activity::kPointToPoint) return std::nullopt;
    RankState own = state;
    find_partners(job_, own);
    if (!own.peer) return std::nullopt;
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (is_compared(states_[i]) && job_.ranks[states_[i].rank].rank == own.peer) return i;
    return std::nullopt;
  }

  // The thread that holds this rank up, as compared with the others whose main threads wait at its place.
  std::optional<Doing> held_up_thread_of(std::size_t i) {
    const RankState& s = states_[i];
    if (!known::waits_for_ranks(s.doing.activity) || s.doing.activity == known::Activity::kPointToPoint)
      return std::nullopt;
    const RankSnapshot& rank = job_.ranks[s.rank];
    if (rank.threads[s.doing.thread].tid != rank.pid) return std::nullopt;
    const std::string place = describe_place(job_, rank.threads[s.doing.thread]);
    std::vector<std::size_t> alike;  // ranks
    for (const RankState& other : states_)
      if (&other != &s && is_compared(other) && other.doing.activity == s.doing.activity &&
          describe_place(job_, job_.ranks[other.rank].threads[other.doing.thread]) == place)
        alike.push_back(other.rank);
    if (alike.empty()) return std::nullopt;
    std::optional<Doing> found;
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      const std::string entry = entry_of_thread(s.rank, t);
      if (entry.empty()) continue;
      Doing doing = activities_.of_thread(s.rank, t);
      if (!is_held_up(doing) ||
          !std::all_of(alike.begin(), alike.end(), [&](std::size_t r) { return rests_in(r, entry); }))
        continue;
      if (found) return std::nullopt;
      found = std::move(doing);
    }
    return found;
  }

 private:
  static bool is_compared(const RankState& state) { return state.readable && !state.unrelated; }

  // "" for a main thread, and for one without the user's code.
  std::string entry_of_thread(std::size_t rank, std::size_t thread) const {
    const ThreadSnapshot& its = job_.ranks[rank].threads[thread];
    if (roles_[rank][thread] != known::Role::kPython || its.tid == job_.ranks[rank].pid) return "";
    return entry_of(job_, its);
  }

  // By something that is neither another rank nor another thread, whose work may come at any time.
  static bool is_held_up(const Doing& doing) {
    return reason_of(doing.activity) != Reason::kNone && doing.activity != known::Activity::kPythonLock;
  }

  // Whether the rank has threads that begin so, and each waits for another thread of its process.
  bool rests_in(std::size_t rank, const std::string& entry) {
    bool any = false;
    for (std::size_t t = 0; t < job_.ranks[rank].threads.size(); ++t) {
      if (entry_of_thread(rank, t) != entry) continue;
      if (activities_.of_thread(rank, t).activity != known::Activity::kPythonLock) return false;
      any = true;
    }
    return any;
  }

  const JobSnapshot& job_;
  const std::vector<std::vector<known::Role>>& roles_;
  Activities& activities_;
  const std::vector<RankState>& states_;
};

}  // namespace

void refine_by_message_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                               Activities& activities, std::vector<RankState>& states) {
  std::vector<std::pair<std::size_t, Doing>> refined;
  MessageThreads threads(job, roles, activities, states);
  for (const RankState& s : states)
    if (const auto peer = threads.peer_of(s))
      if (auto doing = threads.held_up_thread_of(*peer)) refined.emplace_back(*peer, std::move(*doing));
  for (auto& [i, doing] : refined) {
    states[i].doing = std::move(doing);
    states[i].by_own_thread = true;
  }
}

}  // namespace rankstacks::analyzers
