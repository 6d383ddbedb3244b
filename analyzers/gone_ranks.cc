#include "analyzers/gone_ranks.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <string>

#include "analyzers/children.h"
#include "analyzers/deaths.h"
#include "analyzers/watchdog_reporters.h"
#include "model/process_key.h"

namespace rankstacks::analyzers {
namespace {

// Faults of the program itself. SIGABRT may come from a watchdog that follows another rank's failure; SIGTRAP and
// SIGQUIT are used to take cores on purpose.
bool is_fault(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGSYS;
}

// NCCL has no answer of that rank, on this machine, and knows it by another process number: what has its number in the
// environment is a child that it has left behind. (The rank itself would have been found first: it is older.)
bool is_left_behind(const JobSnapshot& job, const UnseenRank& unseen, int world) {
  if (!job.nccl) return false;
  return std::any_of(job.nccl->communicators.begin(), job.nccl->communicators.end(), [&](const NcclCommunicator& one) {
    if (one.size != world) return false;
    return std::any_of(one.missing.begin(), one.missing.end(), [&](const NcclMember& lost) {
      return lost.rank == unseen.rank && lost.pid != 0 && lost.pid != unseen.pid &&
             std::any_of(one.members.begin(), one.members.end(), [&](const NcclMember& here) {
               return here.host == lost.host && here.process && here.process->pid == here.pid &&
                      here.process->host == unseen.host;
             });
    });
  });
}

// The numbers of ranks, from 0 to below the world size; others are none.
class RanksSeen {
 public:
  explicit RanksSeen(int world) : has_(static_cast<std::size_t>(world)) {}
  bool is_number(int rank) const { return rank >= 0 && static_cast<std::size_t>(rank) < has_.size(); }
  // Whether it is a number of a rank, and new.
  bool add(int rank) {
    if (!is_number(rank) || has(rank)) return false;
    return has_[static_cast<std::size_t>(rank)] = true;
  }
  bool has(int rank) const { return has_[static_cast<std::size_t>(rank)]; }
  bool has_any(int first, int end) const {
    return std::find(has_.begin() + first, has_.begin() + end, true) != has_.begin() + end;
  }

 private:
  std::vector<bool> has_;
};

// How many ranks each machine has.
class RanksPerMachine {
 public:
  // Ranks that follow one another are mostly of one machine, which is looked up once.
  void add(const RankSnapshot& rank) {
    if (last_ == nullptr || last_->host != rank.host || last_->pid_space != rank.pid_space) {
      last_ = &rank;
      count_ = &counts_[process_key(rank, 0)];
    }
    ++*count_;
  }
  void add(const UnseenRank& unseen) { ++counts_[process_key(UnseenRank{0, unseen.host, 0, unseen.pid_space})]; }
  int most() const {
    int most = 0;
    for (const auto& [machine, count] : counts_) most = std::max(most, count);
    return most;
  }

 private:
  std::map<ProcessKey, int> counts_;  // by the machine's process 0
  const RankSnapshot* last_ = nullptr;
  int* count_ = nullptr;
};

}  // namespace

MissingRanks missing_ranks(const JobSnapshot& job) {
  MissingRanks missing;
  std::vector<const RankSnapshot*> alive;
  int world = 0, stated = 0;  // stated: ranks on one machine
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.kind != RankKind::kRank) continue;
    if (!rank.rank && is_dead(rank)) continue;           // its environment ended with it
    if (!rank.rank || !rank.world_size) return missing;  // it cannot be determined which other ranks there are
    if (is_dead(rank)) continue;
    if (world != 0 && *rank.world_size != world) return missing;
    world = *rank.world_size;
    stated = std::max(stated, std::min(rank.local_world_size.value_or(0), world));
    alive.push_back(&rank);
  }
  constexpr int kMaxRanks = 1 << 20;  // more than any job has; a corrupt snapshot may say anything
  if (alive.empty() || world > kMaxRanks) return missing;
  RanksSeen seen(world);
  RanksPerMachine per_machine;
  for (const RankSnapshot* rank : alive)
    if (seen.add(*rank->rank) || !seen.is_number(*rank->rank)) per_machine.add(*rank);
  for (const UnseenRank& unseen : job.not_looked_at)
    if (seen.add(unseen.rank)) {
      (is_left_behind(job, unseen, world) ? missing.certain : missing.alive).push_back(unseen.rank);
      per_machine.add(unseen);
    }
  const int block = std::max(stated, per_machine.most());
  // Blocks of `block` ranks: a block of which no rank was captured is a machine that was not captured. So is a
  // shorter block at the end, if there are others.
  std::vector<int> tail;
  for (int first = 0; first < world; first += block) {
    const int end = std::min(first + block, world);
    std::vector<int>& into = seen.has_any(first, end) ? missing.certain
                             : end - first == block   ? missing.elsewhere
                                                      : tail;
    for (int r = first; r < end; ++r)
      if (!seen.has(r)) into.push_back(r);
  }
  // A node that has not answered keeps its ranks from being looked at; they may well be there.
  std::set<int> silent;
  bool some_silent = false;
  for (const NodeSnapshot& node : job.nodes) {
    some_silent |= node.fault != NodeFault::kNone && node.fault != NodeFault::kNoRanks;
    silent.insert(node.ranks.begin(), node.ranks.end());
  }
  std::vector<int>& into = missing.elsewhere.empty() && !some_silent ? missing.certain : missing.elsewhere;
  into.insert(into.end(), tail.begin(), tail.end());
  const auto unsure = std::stable_partition(missing.certain.begin(), missing.certain.end(),
                                            [&](int rank) { return !silent.contains(rank); });
  missing.elsewhere.insert(missing.elsewhere.end(), unsure, missing.certain.end());
  missing.certain.erase(unsure, missing.certain.end());
  std::sort(missing.elsewhere.begin(), missing.elsewhere.end());
  std::sort(missing.certain.begin(), missing.certain.end());
  return missing;
}

std::vector<std::size_t> crashed_ranks(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                       const MissingRanks& missing) {
  std::vector<std::size_t> faults, aborts, followers;
  std::size_t ranks = 0;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank) continue;
    ++ranks;
    if (!rank.signal || is_sent_by_another(rank)) continue;
    // NCCL's watchdog aborts its process because of what another rank did, and so does a program whose connections have
    // broken. What follows in such a process, a fault of a destructor for example, is no first cause.
    // A core without threads does not show whether it was a watchdog.
    bool of_others = false, by_watchdog = rank.threads.empty() && !rank.abort_message;
    for (std::size_t t = 0; t < rank.threads.size(); ++t) {
      if (rank.threads[t].tid != rank.signal->tid) continue;
      of_others = reports_others(rank.threads[t]);
      by_watchdog = is_watchdog_reporter(roles[r][t], rank.threads[t]);
    }
    if (is_fault(rank.signal->number)) (of_others ? followers : faults).push_back(r);
    if (rank.signal->number == SIGABRT && !of_others && !by_watchdog) aborts.push_back(r);
  }
  // A signal that every rank has does not distinguish any of them; a single core shares it with none.
  if (!faults.empty()) {
    const int first = job.ranks[faults.front()].signal->number;
    const bool shared =
        ranks > 1 && faults.size() == ranks &&
        std::all_of(faults.begin(), faults.end(), [&](std::size_t r) { return job.ranks[r].signal->number == first; });
    return shared ? std::vector<std::size_t>{} : faults;
  }
  if (aborts.empty() && (followers.size() < ranks || ranks == 1) && missing.certain.empty()) return followers;
  return ranks > 1 && aborts.size() == ranks ? std::vector<std::size_t>{} : aborts;
}

}  // namespace rankstacks::analyzers
