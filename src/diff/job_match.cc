#include "diff/job_match.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "model/process_key.h"

namespace rankstacks::diff {
namespace {

constexpr const char* kUnknownHost = "unknown";

// Where a report lacks the identity of the process.
bool may_be_one_process(const RankSnapshot& a, const RankSnapshot& b) {
  if (a.kind != b.kind || a.pid == 0 || b.pid == 0) return false;
  if (a.rank && b.rank && a.rank != b.rank) return false;
  const bool hosts_known = a.host != kUnknownHost && b.host != kUnknownHost;
  if (hosts_known && a.host != b.host) return false;
  // A core states the pid in the process's own namespace.
  const auto has = [](const RankSnapshot& process, Pid pid) {
    return process.pid == pid || (process.own_pid && process.own_pid->pid == pid);
  };
  if (!has(a, b.pid) && !has(b, a.pid)) return false;
  const bool both_dumps = a.source == Source::kDump && b.source == Source::kDump;
  return hosts_known || both_dumps || (a.rank && a.rank == b.rank);
}

bool is_one_process(const RankSnapshot& a, const RankSnapshot& b) {
  return same_process(a, b).value_or(may_be_one_process(a, b));
}

// Names under which a process can be found again; is_one_process() decides.
std::vector<std::string> names_of(const RankSnapshot& process) {
  std::vector<Pid> pids{process.pid};
  if (process.own_pid && process.own_pid->pid != process.pid) pids.push_back(process.own_pid->pid);
  std::vector<std::string> names;
  if (process.pid_space) {
    const PidSpace& space = *process.pid_space;
    names.push_back(fmt::format("s/{}/{}/{}", space.boot_id, space.pid_namespace, process.pid));
    if (process.own_pid)
      names.push_back(fmt::format("s/{}/{}/{}", space.boot_id, process.own_pid->pid_namespace, process.own_pid->pid));
  }
  for (const Pid pid : pids) {
    names.push_back(fmt::format("h/{}/{}", process.host, pid));
    if (process.rank) names.push_back(fmt::format("r/{}/{}", *process.rank, pid));
  }
  return names;
}

// Of one name; a report in which more processes have one is not of a real job.
constexpr std::size_t kMaxCandidates = 4096;

class Matcher {
 public:
  Matcher(const Sides& sides, const SeenJob& old, const SeenJob& now)
      : sides_(sides),
        old_seen_(old),
        now_seen_(now),
        old_of_(sides.now.job.ranks.size()),
        taken_(sides.old.job.ranks.size(), false) {}

  JobMatch match() {
    match_processes();
    match_ranks();
    match_only_processes();
    match_children();
    JobMatch result;
    for (std::size_t n = 0; n < old_of_.size(); ++n) {
      if (!old_of_[n]) {
        result.joined.push_back(n);
        continue;
      }
      ProcessPair pair{old_of_[n]->first, n, old_of_[n]->second, {}, {}, {}};
      match_threads(pair);
      result.pairs.push_back(std::move(pair));
    }
    for (std::size_t o = 0; o < taken_.size(); ++o)
      if (!taken_[o]) result.gone.push_back(o);
    return result;
  }

 private:
  const std::vector<RankSnapshot>& old() const { return sides_.old.job.ranks; }
  const std::vector<RankSnapshot>& now() const { return sides_.now.job.ranks; }

  void pair(std::size_t o, std::size_t n, Match match) {
    old_of_[n] = {o, match};
    taken_[o] = true;
  }

  void match_processes() {
    std::unordered_map<std::string, std::vector<std::size_t>> by_name;
    for (std::size_t o = 0; o < old().size(); ++o)
      for (std::string& name : names_of(old()[o])) by_name[std::move(name)].push_back(o);
    for (std::size_t n = 0; n < now().size(); ++n)
      for (const std::string& name : names_of(now()[n])) {
        const auto found = by_name.find(name);
        if (old_of_[n] || found == by_name.end()) continue;
        std::size_t left = kMaxCandidates;
        for (const std::size_t o : found->second) {
          if (left-- == 0) break;
          if (taken_[o] || !is_one_process(old()[o], now()[n])) continue;
          pair(o, n, Match::kProcess);
          break;
        }
      }
  }

  void match_ranks() {
    std::multimap<int, std::size_t> by_number;
    for (std::size_t o = 0; o < old().size(); ++o)
      if (!taken_[o] && old()[o].kind == RankKind::kRank && old()[o].rank) by_number.emplace(*old()[o].rank, o);
    for (std::size_t n = 0; n < now().size(); ++n) {
      if (old_of_[n] || now()[n].kind != RankKind::kRank || !now()[n].rank) continue;
      const auto found = by_number.find(*now()[n].rank);
      if (found == by_number.end()) continue;
      pair(found->second, n, Match::kRank);
      by_number.erase(found);
    }
  }

  // The output of another tool for one process may state neither its rank nor its pid.
  void match_only_processes() {
    if (old().size() != 1 || now().size() != 1 || old_of_[0]) return;
    const auto is_nameless = [](const RankSnapshot& process) { return !process.rank && process.pid == 0; };
    if (is_nameless(old()[0]) || is_nameless(now()[0])) pair(0, 0, Match::kRank);
  }

  known::Role role_of(const Side& side, std::size_t process) const {
    const auto& roles = side.analysis.roles[process];
    return roles.empty() ? known::Role::kNative : roles.front();
  }

  // Children of a rank that was started anew, in the order of their pids: the third worker is the third worker.
  void match_children() {
    std::map<std::pair<std::size_t, known::Role>, std::vector<std::size_t>> of_old;  // by the new parent
    std::map<ProcessKey, std::size_t> anew, parent;
    for (std::size_t n = 0; n < now().size(); ++n) {
      if (!old_of_[n] || old_of_[n]->second != Match::kRank) continue;
      anew.emplace(process_key(old()[old_of_[n]->first]), n);
      parent.emplace(process_key(now()[n]), n);
    }
    const auto parent_of = [](const std::map<ProcessKey, std::size_t>& among, const RankSnapshot& child) {
      if (child.kind != RankKind::kChild || !child.parent) return among.end();
      return among.find(process_key(child, *child.parent));
    };
    for (std::size_t o = 0; o < old().size(); ++o)
      if (const auto of = parent_of(anew, old()[o]); !taken_[o] && of != anew.end())
        of_old[{of->second, role_of(sides_.old, o)}].push_back(o);
    for (std::size_t n = 0; n < now().size(); ++n) {
      const auto of = parent_of(parent, now()[n]);
      if (old_of_[n] || of == parent.end()) continue;
      const auto candidates = of_old.find({of->second, role_of(sides_.now, n)});
      if (candidates == of_old.end() || candidates->second.empty()) continue;
      pair(candidates->second.front(), n, Match::kRank);
      candidates->second.erase(candidates->second.begin());
    }
  }

  // The state of one pair's threads while they are matched.
  struct Threads {
    const ProcessPair& pair;
    std::vector<std::optional<std::size_t>> old_of;
    std::vector<bool> taken;
  };

  void match_threads(ProcessPair& pair) const {
    const RankSnapshot &before = old()[pair.old], &after = now()[pair.now];
    Threads threads{pair, std::vector<std::optional<std::size_t>>(after.threads.size()),
                    std::vector<bool>(before.threads.size(), false)};
    // Numbers of threads are those of the namespace in which the process was read.
    if (pair.match == Match::kProcess && before.pid == after.pid) by_tid(threads);
    else by_role(threads);
    for (std::size_t t = 0; t < threads.old_of.size(); ++t) {
      if (threads.old_of[t]) pair.threads.push_back({*threads.old_of[t], t});
      else pair.begun.push_back(t);
    }
    for (std::size_t t = 0; t < threads.taken.size(); ++t)
      if (!threads.taken[t]) pair.ended.push_back(t);
  }

  void by_tid(Threads& threads) const {
    std::map<Tid, std::size_t> tids;
    const auto& before = old()[threads.pair.old].threads;
    for (std::size_t t = 0; t < before.size(); ++t) tids.emplace(before[t].tid, t);
    const auto& after = now()[threads.pair.now].threads;
    for (std::size_t t = 0; t < after.size(); ++t) {
      const auto found = tids.find(after[t].tid);
      if (found == tids.end() || threads.taken[found->second]) continue;
      threads.old_of[t] = found->second;
      threads.taken[found->second] = true;
    }
  }

  // The threads of one role: first those with equal stacks, then those with equal names, then in their order. The main
  // threads are the only ones of their role.
  void by_role(Threads& threads) const {
    const auto& old_seen = old_seen_[threads.pair.old];
    const auto& now_seen = now_seen_[threads.pair.now];
    const auto& before = old()[threads.pair.old].threads;
    const auto& after = now()[threads.pair.now].threads;
    take(
        threads, [&](std::size_t t) { return old_seen[t].stack; }, [&](std::size_t t) { return now_seen[t].stack; });
    take(
        threads, [&](std::size_t t) { return before[t].name; }, [&](std::size_t t) { return after[t].name; });
    take(
        threads, [](std::size_t) { return 0; }, [](std::size_t) { return 0; });
  }

  // Pairs the threads that are left and have equal roles and keys.
  template <class OldKey, class NowKey>
  void take(Threads& threads, OldKey&& old_key, NowKey&& now_key) const {
    const auto& old_roles = sides_.old.analysis.roles[threads.pair.old];
    const auto& now_roles = sides_.now.analysis.roles[threads.pair.now];
    std::map<std::pair<known::Role, decltype(old_key(0))>, std::vector<std::size_t>> left;  // the last one is next
    for (std::size_t o = threads.taken.size(); o-- > 0;)
      if (!threads.taken[o]) left[{old_roles[o], old_key(o)}].push_back(o);
    for (std::size_t n = 0; n < threads.old_of.size(); ++n) {
      if (threads.old_of[n]) continue;
      const auto found = left.find({now_roles[n], now_key(n)});
      if (found == left.end() || found->second.empty()) continue;
      threads.old_of[n] = found->second.back();
      threads.taken[found->second.back()] = true;
      found->second.pop_back();
    }
  }

  const Sides& sides_;
  const SeenJob &old_seen_, &now_seen_;
  std::vector<std::optional<std::pair<std::size_t, Match>>> old_of_;  // by the index in the new report
  std::vector<bool> taken_;                                           // by the index in the old one
};

}  // namespace

JobMatch match_jobs(const Sides& sides, const SeenJob& old, const SeenJob& now) {
  return Matcher(sides, old, now).match();
}

}  // namespace rankstacks::diff
