#include "analyzers/launches.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/divergence.h"
#include "analyzers/sides.h"
#include "base/text.h"
#include "model/process_key.h"

namespace rankstacks::analyzers {
namespace {

using Counts = std::vector<std::pair<std::string, std::int64_t>>;

std::int64_t total(const Counts& counts) {
  std::int64_t sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

// Of some collective.
bool has_launched_more(const Counts& counts, const Counts& than) {
  return std::any_of(counts.begin(), counts.end(), [&](const auto& one) {
    const auto found =
        std::find_if(than.begin(), than.end(), [&](const auto& other) { return other.first == one.first; });
    return one.second > (found == than.end() ? 0 : found->second);
  });
}

// A communicator and its states.
struct Seen {
  std::map<std::size_t, Counts> counts;  // by state
  // Fewer launches than others, and of no collective more than those who have the most: these, where all have launched
  // the same, may have got to it later. Empty if all have as many.
  std::set<std::size_t> laggards;
};

class Launches {
 public:
  Launches(const JobSnapshot& job, const std::vector<RankState>& states) : job_(job), states_(states) {
    std::map<ProcessKey, std::size_t> state_of;
    for (std::size_t i = 0; i < states.size(); ++i)
      if (states[i].readable && !states[i].unrelated) state_of.emplace(process_key(job.ranks[states[i].rank]), i);
    for (const NcclCommunicator& communicator : job.nccl->communicators) {
      Seen seen;
      std::int64_t most = 0;
      for (const NcclMember& member : communicator.members) {
        if (!member.process) continue;
        const auto it = state_of.find(process_key(*member.process));
        if (it == state_of.end()) continue;
        most = std::max(most, total(member.launched));
        seen.counts.emplace(it->second, member.launched);
      }
      std::set<Counts> furthest;
      for (const auto& [i, counts] : seen.counts)
        if (total(counts) == most) furthest.insert(counts);
      for (const auto& [i, counts] : seen.counts)
        if (total(counts) < most &&
            std::any_of(furthest.begin(), furthest.end(),
                        [&own = counts](const Counts& further) { return !has_launched_more(own, further); }))
          seen.laggards.insert(i);
      if (seen.counts.size() >= 2) communicators_.push_back(std::move(seen));
    }
  }

  // One communicator has all of these ranks, and those of them that wait for their GPUs have launched as much as the
  // others on every communicator.
  bool none_is_late(const std::vector<std::size_t>& waiting) const {
    bool all_in_one = false;
    for (const Seen& seen : communicators_) {
      if (std::any_of(waiting.begin(), waiting.end(), [&](std::size_t i) {
            return seen.laggards.contains(i) && states_[i].doing.activity == known::Activity::kGpuWait;
          }))
        return false;
      all_in_one |= std::all_of(waiting.begin(), waiting.end(), [&](std::size_t i) { return seen.counts.contains(i); });
    }
    return all_in_one;
  }

  // One communicator has all of these ranks, and on no communicator any of them has launched another number of any
  // collective than another rank.
  bool all_are_equal(const std::vector<std::size_t>& waiting) const {
    bool all_in_one = false;
    for (const Seen& seen : communicators_) {
      const auto has = [&](std::size_t i) { return seen.counts.contains(i); };
      const bool differ = std::any_of(seen.counts.begin(), seen.counts.end(),
                                      [&](const auto& one) { return one.second != seen.counts.begin()->second; });
      if (differ && std::any_of(waiting.begin(), waiting.end(), has)) return false;
      all_in_one |= std::all_of(waiting.begin(), waiting.end(), has);
    }
    return all_in_one;
  }

  // Those that have launched more than another rank, whose counts do not rise.
  std::set<std::size_t> ahead() const {
    std::set<std::size_t> found;
    for (const Seen& seen : communicators_)
      for (const auto& [i, counts] : seen.counts)
        if (!seen.laggards.empty() && !seen.laggards.contains(i)) found.insert(i);
    return found;
  }

  std::optional<Deadlock> explain() const {
    if (auto found = order()) return found;
    if (auto found = another_collective()) return found;
    if (auto found = laggards()) return found;
    return ahead_of_most();
  }

  // Some wait for their GPUs, in what the others of their communicator have not launched, which wait in a collective
  // on the host, as gloo's are. Either these have skipped it, or it is one too many: whoever is fewer is wrong; of two
  // halves, those who have launched another number than the ranks of parallel communicators, or than their own steps
  // have had.
  std::optional<Deadlock> skipped() const {
    for (const Seen& seen : communicators_) {
      const Side late(seen.laggards.begin(), seen.laggards.end());
      Side ahead;
      for (const auto& [i, counts] : seen.counts)
        if (!seen.laggards.contains(i)) ahead.push_back(i);
      if (late.empty() || late.size() * 2 > seen.counts.size() ||
          !std::all_of(ahead.begin(), ahead.end(), [&](std::size_t i) { return waits_for_gpu(i); }) ||
          !std::all_of(late.begin(), late.end(), [&](std::size_t i) {
            return states_[i].doing.activity == known::Activity::kCollective && !waits_for_gpu(i);
          }))
        continue;
      const bool halves = late.size() * 2 == seen.counts.size();
      Counts usual = halves ? launched_by_parallel(seen) : Counts();
      const bool by_steps = halves && usual.empty();
      if (by_steps) usual = launched_by_steps(seen, ahead.front(), late.front());
      if (halves && usual.empty()) continue;
      const bool one_too_many = halves && usual != seen.counts.at(ahead.front());
      if (one_too_many && usual != seen.counts.at(late.front())) continue;
      const Side &wrong = one_too_many ? ahead : late, &right = one_too_many ? late : ahead;
      const bool behind = !one_too_many && divergence_of(states_[late.front()], states_[ahead.front()]).a_is_behind();
      Deadlock found =
          accuse_side(wrong, behind ? Reason::kBehind : Reason::kCollectiveMismatch,
                      fmt::format("{}; by NCCL's counts {} launched {}, and {} {}", describe_side(job_, states_, right),
                                  name(right), text(seen.counts.at(right.front())), name(wrong),
                                  text(seen.counts.at(wrong.front()))),
                      false);
      if (by_steps)
        for (Blame& blame : found.suspects) blame.confidence = kSkippedBySteps;
      return found;
    }
    return std::nullopt;
  }

 private:
  bool waits_for_gpu(std::size_t i) const {
    return states_[i].doing.activity == known::Activity::kGpuWait || states_[i].gpu.in_collective();
  }

  bool is_ahead_elsewhere(const Seen& here, std::size_t i) const {
    return std::any_of(communicators_.begin(), communicators_.end(), [&](const Seen& other) {
      return &other != &here && !other.laggards.empty() && other.counts.contains(i) && !other.laggards.contains(i);
    });
  }

  // What all members have launched in the communicators that are to other ranks what this one is to its members: as
  // many of them, none of them the same, nobody late. Replicas have such communicators, and so have shards. Empty if
  // there are none, or if these differ.
  Counts launched_by_parallel(const Seen& seen) const {
    Counts common;
    for (const Seen& other : communicators_) {
      const auto is_shared = [&](const auto& one) { return seen.counts.contains(one.first); };
      if (other.counts.size() != seen.counts.size() || std::any_of(other.counts.begin(), other.counts.end(), is_shared))
        continue;
      for (const auto& [i, counts] : other.counts) {
        if (!common.empty() && counts != common) return {};
        common = counts;
      }
    }
    return common;
  }

  // Of two ranks whose counts differ in one communicator: the counts of the one that has launched each collective there
  // as often as something else in every step. How many steps there were is what both have launched alike in their other
  // communicators, in which nobody is late. Empty if that fits both, or neither.
  Counts launched_by_steps(const Seen& seen, std::size_t a, std::size_t b) const {
    const auto steps_of = [&](std::size_t i) {
      constexpr std::int64_t kFewSteps = 3;  // smaller numbers are equal by chance
      std::set<std::int64_t> steps;
      for (const Seen& other : communicators_) {
        const auto own = other.counts.find(i);
        if (&other == &seen || own == other.counts.end() ||
            std::any_of(other.counts.begin(), other.counts.end(),
                        [&](const auto& one) { return one.second != own->second; }))
          continue;
        for (const auto& [collective, count] : own->second)
          if (count >= kFewSteps) steps.insert(count);
      }
      return steps;
    };
    const std::set<std::int64_t> of_a = steps_of(a), of_b = steps_of(b);
    std::set<std::int64_t> steps;
    std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::inserter(steps, steps.end()));
    const auto fits = [&](const Counts& counts) {
      return std::all_of(counts.begin(), counts.end(),
                         [&](const auto& one) { return one.second == 0 || steps.contains(one.second); });
    };
    const Counts &by_a = seen.counts.at(a), &by_b = seen.counts.at(b);
    if (fits(by_a) == fits(by_b)) return {};
    return fits(by_a) ? by_a : by_b;
  }

  std::string name(const Side& members) const { return name_side(job_, states_, members); }

  static std::string text(const Counts& counts) {
    std::string said;
    for (const auto& [operation, count] : counts)
      if (count > 0) said += fmt::format("{}{} {}", said.empty() ? "" : " and ", count, operation);
    return said.empty() ? "nothing" : said;
  }

  // Each side lags in the communicator in which the other waits.
  std::optional<Deadlock> order() const {
    for (std::size_t x = 0; x < communicators_.size(); ++x)
      for (std::size_t y = x + 1; y < communicators_.size(); ++y) {
        const Seen &a = communicators_[x], &b = communicators_[y];
        if (a.laggards.empty() || b.laggards.empty()) continue;
        const Side in_b(a.laggards.begin(), a.laggards.end()), in_a(b.laggards.begin(), b.laggards.end());
        const bool crossed =
            std::all_of(in_b.begin(), in_b.end(),
                        [&](std::size_t i) { return b.counts.contains(i) && !b.laggards.contains(i); }) &&
            std::all_of(in_a.begin(), in_a.end(),
                        [&](std::size_t i) { return a.counts.contains(i) && !a.laggards.contains(i); });
        if (!crossed) continue;
        bool equal = false;
        const auto suspects = smaller_side(in_a, in_b, equal);
        return accuse_side(
            suspects, Reason::kProcessGroupOrder,
            fmt::format("by NCCL's counts {} and {} launched in different communicators, each of which needs the other",
                        name(in_a), name(in_b)),
            equal);
      }
    return std::nullopt;
  }

  std::optional<Deadlock> another_collective() const {
    for (const Seen& seen : communicators_) {
      if (!seen.laggards.empty()) continue;
      std::map<Counts, std::vector<std::size_t>> sides;
      for (const auto& [i, counts] : seen.counts) sides[counts].push_back(i);
      if (sides.size() != 2) continue;
      const auto &first = *sides.begin(), &second = *sides.rbegin();
      bool equal = false;
      const auto suspects = smaller_side(first.second, second.second, equal);
      return accuse_side(suspects, Reason::kCollectiveMismatch,
                         fmt::format("by NCCL's counts {} launched {}, and {} launched {}", name(first.second),
                                     text(first.first), name(second.second), text(second.first)),
                         equal);
    }
    return std::nullopt;
  }

  std::optional<Deadlock> laggards() const {
    for (const Seen& seen : communicators_) {
      const std::vector<std::size_t> late(seen.laggards.begin(), seen.laggards.end());
      if (late.empty() || late.size() * 2 > seen.counts.size()) continue;
      // They are late because they wait in another communicator, for ranks that are late there.
      if (std::all_of(late.begin(), late.end(), [&](std::size_t i) { return is_ahead_elsewhere(seen, i); })) continue;
      // Messages are not counted; communicators for messages have two ranks, and run nothing else.
      const bool messages = std::any_of(communicators_.begin(), communicators_.end(), [&](const Seen& pair) {
        return pair.counts.size() == 2 && std::all_of(pair.counts.begin(), pair.counts.end(), [&](const auto& one) {
                 return total(one.second) == 0 && seen.laggards.contains(one.first);
               });
      });
      // A rank that waits in an operation of another kind has its own reason. One that waits for its GPU at the very
      // place of a rank that has launched more is an operation behind; at another place its GPU has work of its own.
      if (!messages && std::any_of(late.begin(), late.end(), [&](std::size_t i) {
            return states_[i].doing.activity != known::Activity::kGpuWait;
          }))
        continue;
      const bool at_same_place = std::any_of(seen.counts.begin(), seen.counts.end(), [&](const auto& one) {
        return !seen.laggards.contains(one.first) &&
               place_key(job_, states_[one.first]) == place_key(job_, states_[late.front()]);
      });
      if (auto found = messages ? std::nullopt : in_another_library(seen, late)) return found;
      Deadlock found = accuse_side(late,
                                   messages        ? Reason::kUnmatchedP2p
                                   : at_same_place ? Reason::kBehind
                                                   : Reason::kGpuWait,
                                   fmt::format("by NCCL's counts {} not launched what the others wait for",
                                               late.size() == 1 ? "it has" : name(late) + " have"),
                                   false);
      found.may_be_a_step = !messages;
      return found;
    }
    return std::nullopt;
  }

  // The GPUs of those that are late poll in a collective that NCCL does not count, while those of all others are in one
  // of NCCL's: neither come to the other one.
  std::optional<Deadlock> in_another_library(const Seen& seen, const Side& late) const {
    const auto in_other = [&](std::size_t i) { return runs_collective_of_another_library(states_[i].gpu); };
    Side others;
    for (const auto& [i, counts] : seen.counts)
      if (!seen.laggards.contains(i)) others.push_back(i);
    const bool others_in_nccl = std::all_of(
        others.begin(), others.end(), [&](std::size_t i) { return states_[i].gpu.in_collective() && !in_other(i); });
    std::size_t polling = 0;  // of all ranks: those outside of this communicator may be who meets them
    for (std::size_t i = 0; i < states_.size(); ++i) polling += in_other(i) ? 1 : 0;
    if (!others_in_nccl || polling != late.size() || !std::all_of(late.begin(), late.end(), in_other))
      return std::nullopt;
    bool equal = false;
    const Side accused = smaller_side(late, others, equal);
    Deadlock found =
        accuse_side(accused, Reason::kCollectiveMismatch,
                    fmt::format("by NCCL's counts {} {} launched what {} {} not, in whose place {} runs", name(others),
                                others.size() == 1 ? "has" : "have", name(late), late.size() == 1 ? "has" : "have",
                                describe_kernel(*states_[late.front()].gpu.kernel)),
                    equal);
    found.may_be_a_step = true;
    return found;
  }

  // Most ranks wait for their GPUs at one place and have launched less than the others, which wait for theirs
  // elsewhere: what most wait for is counted nowhere (messages, as in an exchange between all), and the others have
  // skipped it. Not so if the GPUs of most compute: these will come.
  std::optional<Deadlock> ahead_of_most() const {
    for (const Seen& seen : communicators_) {
      const Side most(seen.laggards.begin(), seen.laggards.end());
      if (most.size() * 2 <= seen.counts.size() || most.size() < 2) continue;
      Side others;
      for (const auto& [i, counts] : seen.counts)
        if (!seen.laggards.contains(i)) others.push_back(i);
      const auto wait_at_one_place = [&](const Side& side) {
        return std::all_of(side.begin(), side.end(), [&](std::size_t i) {
          return states_[i].gpu_wait_may_be_collective &&
                 place_key(job_, states_[i]) == place_key(job_, states_[side.front()]);
        });
      };
      const bool alike = std::all_of(most.begin(), most.end(),
                                     [&](std::size_t i) { return seen.counts.at(i) == seen.counts.at(most.front()); });
      if (!alike || !wait_at_one_place(most) || !wait_at_one_place(others) ||
          place_key(job_, states_[most.front()]) == place_key(job_, states_[others.front()]) ||
          std::any_of(most.begin(), most.end(), [&](std::size_t i) { return states_[i].gpu_computes == true; }))
        continue;
      Deadlock found = accuse_side(
          others, Reason::kCollectiveMismatch,
          fmt::format(
              "by NCCL's counts {} launched {}, and {}, which {} for something that they have launched before, {}",
              name(others), text(seen.counts.at(others.front())), name(most), most.size() == 1 ? "waits" : "wait",
              text(seen.counts.at(most.front()))),
          false);
      for (Blame& blame : found.suspects) blame.confidence = kSkippedByFew;
      found.may_be_a_step = true;
      return found;
    }
    return std::nullopt;
  }

  static constexpr double kSkippedByFew = 0.45, kSkippedBySteps = 0.6;

  const JobSnapshot& job_;
  const std::vector<RankState>& states_;
  std::vector<Seen> communicators_;
};

}  // namespace

std::optional<Deadlock> explain_by_launches(const JobSnapshot& job, const std::vector<RankState>& states) {
  if (!job.nccl) return std::nullopt;
  return Launches(job, states).explain();
}

std::optional<Deadlock> explain_by_skipped_launch(const JobSnapshot& job, const std::vector<RankState>& states) {
  if (!job.nccl) return std::nullopt;
  return Launches(job, states).skipped();
}

bool none_launched_too_little(const JobSnapshot& job, const std::vector<RankState>& states,
                              const std::vector<std::size_t>& waiting) {
  return job.nccl && Launches(job, states).none_is_late(waiting);
}

bool all_launched_the_same(const JobSnapshot& job, const std::vector<RankState>& states,
                           const std::vector<std::size_t>& waiting) {
  return job.nccl && Launches(job, states).all_are_equal(waiting);
}

void refine_by_launches(const JobSnapshot& job, std::vector<RankState>& states) {
  if (!job.nccl) return;
  for (const std::size_t i : Launches(job, states).ahead()) {
    RankState& s = states[i];
    if (s.doing.activity != known::Activity::kUserCode || s.doing.by_frame || !s.in_one_function || s.counts ||
        s.left_wait || s.progress == Progress::kStill || s.progress == Progress::kUnknown ||
        launches_go_on(job, job.ranks[s.rank]))
      continue;
    s.doing.activity = known::Activity::kGpuWait;
    s.gpu_wait_may_be_collective = true;
    s.progress = Progress::kRuns;
  }
}

LaunchCounts::LaunchCounts(const JobSnapshot& job) : of_rank_(job.ranks.size()) {
  if (!job.nccl) return;
  std::map<ProcessKey, std::size_t> ranks;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) ranks.emplace(process_key(job.ranks[r]), r);
  for (std::size_t c = 0; c < job.nccl->communicators.size(); ++c)
    for (const NcclMember& member : job.nccl->communicators[c].members) {
      if (!member.process) continue;
      if (const auto found = ranks.find(process_key(*member.process)); found != ranks.end())
        of_rank_[found->second].emplace_back(c, &member.launched);
    }
  // A broadcast ends for its source before the others have launched theirs, and a reduction for all but its root.
  for (const auto& launched_by_rank : of_rank_)
    for (const auto& [communicator, launched] : launched_by_rank)
      for (const auto& [operation, count] : *launched)
        if (is_one_of(operation, {"AllReduce", "AllGather", "ReduceScatter"})) {
          const auto [least, first] = least_.try_emplace({communicator, operation}, count);
          least->second = std::min(least->second, count);
        }
}

bool LaunchCounts::are_equal(std::size_t a, std::size_t b) const {
  auto in_a = of_rank_[a].begin(), in_b = of_rank_[b].begin();
  while (in_a != of_rank_[a].end() && in_b != of_rank_[b].end()) {
    if (in_a->first == in_b->first && *in_a->second != *in_b->second) return false;
    if (in_a->first < in_b->first) ++in_a;
    else ++in_b;
  }
  return true;
}

bool LaunchCounts::share_some(std::size_t a, std::size_t b) const {
  return std::any_of(of_rank_[a].begin(), of_rank_[a].end(), [&](const auto& one) {
    return std::any_of(of_rank_[b].begin(), of_rank_[b].end(),
                       [&](const auto& other) { return other.first == one.first; });
  });
}

bool LaunchCounts::has_one_that_cannot_end(std::size_t a) const {
  return std::any_of(of_rank_[a].begin(), of_rank_[a].end(), [&](const auto& one) {
    const auto& [communicator, launched] = one;
    return std::any_of(launched->begin(), launched->end(), [&, communicator = communicator](const auto& counted) {
      const auto least = least_.find({communicator, counted.first});
      return least != least_.end() && counted.second > least->second;
    });
  });
}

bool launches_go_on(const JobSnapshot& job, const RankSnapshot& rank) {
  if (!job.nccl || job.nccl->answers < 2) return false;
  for (const NcclCommunicator& communicator : job.nccl->communicators)
    for (const NcclMember& member : communicator.members)
      if (member.counts_move && member.process && process_key(*member.process) == process_key(rank)) return true;
  return false;
}

}  // namespace rankstacks::analyzers
