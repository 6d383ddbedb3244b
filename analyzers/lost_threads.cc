#include "analyzers/lost_threads.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "analyzers/flight_records.h"
#include "analyzers/local_waits.h"
#include "analyzers/names.h"
#include "analyzers/other_threads.h"
#include "analyzers/thread_waits.h"
#include "analyzers/training_threads.h"

namespace rankstacks::analyzers {
namespace {

// Where the Python threads of a rank begin, apart from its main thread's.
std::set<std::string> entries_of(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                 std::size_t rank) {
  std::set<std::string> entries;
  const RankSnapshot& process = job.ranks[rank];
  for (std::size_t t = 0; t < process.threads.size(); ++t)
    if (roles[rank][t] == known::Role::kPython && process.threads[t].tid != process.pid)
      if (std::string entry = entry_of(job, process.threads[t]); !entry.empty()) entries.insert(std::move(entry));
  return entries;
}

// It waits for what another thread of its process has to do, and there is none that could.
bool waits_for_nobody(const JobSnapshot& job, const RankState& s) {
  const RankSnapshot& rank = job.ranks[s.rank];
  if (s.doing.activity != known::Activity::kPythonLock || rank.status != Status::kComplete ||
      rank.source == Source::kDump || thread_wait_of(rank, s.doing.thread))
    return false;
  const auto wait = local_wait_of(job, s, Reason::kPythonLock);
  const bool for_a_thread = wait && (wait->kind == LocalWaitKind::kQueue || wait->kind == LocalWaitKind::kEvent ||
                                     wait->kind == LocalWaitKind::kCondition);
  return for_a_thread && !other_threads(job, rank, s.doing.thread).any_python;
}

bool compared(const RankState& s) { return s.readable && !s.unrelated; }

// The innermost Python function of the main thread, "select of selectors.py".
std::string function_of_main(const JobSnapshot& job, const RankSnapshot& rank) {
  for (const ThreadSnapshot& thread : rank.threads) {
    if (thread.tid != rank.pid) continue;
    for (const FrameId id : thread.frames)
      if (const Frame& frame = job.frames[id]; frame.kind == FrameKind::kPython)
        return frame.function.value_or("") + " of " + std::string(base_name(frame.file.value_or("")));
  }
  return "";
}

bool needs_all(known::Collective collective) {
  using C = known::Collective;
  return collective == C::kAllReduce || collective == C::kAllGather || collective == C::kAllToAll ||
         collective == C::kBarrier || collective == C::kReduceScatter;
}

// Ranks that are described by a thread that trains, while their main threads are in one function.
struct Trainers {
  std::string entry, main;  // where those threads begin; that function
};

// std::nullopt: they differ, or one does not wait in a collective that needs something of each other rank. (What one
// rank hands on to the others may not have come.)
std::optional<Trainers> find_trainers(const JobSnapshot& job, const std::vector<RankState>& states) {
  std::optional<Trainers> found;
  std::optional<std::set<std::size_t>> by_record;
  for (const RankState& s : states) {
    if (!compared(s) || !s.by_own_thread) continue;
    const RankSnapshot& rank = job.ranks[s.rank];
    Trainers of_rank{entry_of(job, rank.threads[s.doing.thread]), function_of_main(job, rank)};
    if (of_rank.entry.empty() || (found && (found->entry != of_rank.entry || found->main != of_rank.main)))
      return std::nullopt;
    if (!needs_all(s.doing.operation.collective)) {
      if (!by_record) by_record = ranks_that_need_all_by_record(job);
      if (!by_record->contains(s.rank)) return std::nullopt;
    }
    found = std::move(of_rank);
  }
  return found;
}

// Ranks whose main thread serves requests while a thread trains, in some of them; in others only the main thread is
// left: these serve on, and train no more.
void find_lost_trainers(const JobSnapshot& job, std::vector<RankState>& states) {
  if (std::none_of(states.begin(), states.end(), [](const RankState& s) { return s.by_own_thread; })) return;
  const std::optional<Trainers> trainers = find_trainers(job, states);
  if (!trainers) return;
  std::set<int> numbers;  // those of several jobs have the same ones
  for (const RankState& s : states)
    if (const auto number = job.ranks[s.rank].rank; number && !numbers.insert(*number).second) return;
  for (RankState& s : states) {
    const RankSnapshot& rank = job.ranks[s.rank];
    if (!compared(s) || s.by_own_thread || !s.serves || !rank.rank || directs_ranks(rank) ||
        rank.status != Status::kComplete || rank.source == Source::kDump ||
        other_threads(job, rank, s.doing.thread).any_python || function_of_main(job, rank) != trainers->main)
      continue;
    s.lost_thread = trainers->entry;
    s.lost_trainer = true;
    s.serves = false;
  }
}

}  // namespace

void find_lost_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                       std::vector<RankState>& states) {
  find_lost_trainers(job, states);
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < states.size(); ++i)
    if (compared(states[i]) && waits_for_nobody(job, states[i])) waiting.push_back(i);
  if (waiting.empty()) return;
  std::set<std::string> common;  // of all ranks that do not wait like this
  bool first = true;
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!compared(states[i]) || std::binary_search(waiting.begin(), waiting.end(), i)) continue;
    std::set<std::string> own = entries_of(job, roles, states[i].rank);
    if (!first) std::erase_if(own, [&](const std::string& entry) { return !common.contains(entry); });
    common = std::move(own);
    first = false;
  }
  if (common.size() != 1) return;
  for (const std::size_t i : waiting) states[i].lost_thread = *common.begin();
}

}  // namespace rankstacks::analyzers
