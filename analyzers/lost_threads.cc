#include "analyzers/lost_threads.h"

#include <algorithm>
#include <set>
#include <string>

#include "analyzers/local_waits.h"
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

// The function in which the threads begin by which ranks are described, if it is the same for all of them.
std::string entry_of_trainers(const JobSnapshot& job, const std::vector<RankState>& states) {
  std::set<std::string> entries;
  for (const RankState& s : states)
    if (compared(s) && s.by_own_thread) entries.insert(entry_of(job, job.ranks[s.rank].threads[s.doing.thread]));
  return entries.size() == 1 ? *entries.begin() : "";
}

// Ranks whose main thread serves requests while a thread trains, in some of them; in others only the main thread is
// left: these serve on, and train no more.
void find_lost_trainers(const JobSnapshot& job, std::vector<RankState>& states) {
  const std::string entry = entry_of_trainers(job, states);
  if (entry.empty()) return;
  for (RankState& s : states) {
    const RankSnapshot& rank = job.ranks[s.rank];
    if (!compared(s) || s.by_own_thread || !s.serves || rank.status != Status::kComplete ||
        rank.source == Source::kDump || other_threads(job, rank, s.doing.thread).any_python)
      continue;
    s.lost_thread = entry;
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
