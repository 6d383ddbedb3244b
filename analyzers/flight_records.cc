#include "analyzers/flight_records.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "analyzers/call_habits.h"
#include "analyzers/divergence.h"
#include "analyzers/recorded_messages.h"
#include "analyzers/recorded_times.h"
#include "analyzers/sides.h"
#include "known/c10d_operations.h"

namespace rankstacks::analyzers {
namespace {

constexpr double kMinuteMs = 60'000;

// Operations whose number of elements, and type, is the same on all ranks. (Its dumps have
// other names for them than the texts in known/c10d_operations.)
bool has_one_size(std::string_view name) {
  for (const std::string_view one :
       {"all_reduce", "_all_gather_base", "_reduce_scatter_base", "broadcast", "reduce", "allreduce_coalesced",
        "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"})
    if (name == one) return true;
  return false;
}

// Operations in which one rank has what the others get, or gets what they have.
bool has_root(std::string_view name) {
  for (const std::string_view one : {"broadcast", "_broadcast_oop", "scatter", "gather", "reduce", "_reduce_oop"})
    if (name == one) return true;
  return false;
}

double elements_of(const std::vector<std::vector<std::int64_t>>& tensors) {
  double sum = 0;
  for (const auto& tensor : tensors)
    sum += std::accumulate(tensor.begin(), tensor.end(), 1.0,
                           [](double product, std::int64_t size) { return product * static_cast<double>(size); });
  return sum;
}

std::string describe(const RecordedOperation& operation) {
  std::string text = operation.name;
  if (operation.is_message || operation.input_sizes.empty()) return text;
  text += fmt::format(" of {:.0f}", elements_of(operation.input_sizes));
  return operation.input_types.empty() ? text + " elements" : text + " " + operation.input_types.front();
}

const RecordedOperation* first_pending(const RecordedGroup& group) {
  const auto found = std::find_if(group.operations.begin(), group.operations.end(), is_pending);
  return found == group.operations.end() ? nullptr : &*found;
}

std::optional<std::int64_t> first_pending_collective(const RecordedGroup& group) {
  std::optional<std::int64_t> first;
  for (const RecordedOperation& operation : group.operations)
    if (is_pending(operation) && !operation.is_message && (!first || operation.sequence < *first))
      first = operation.sequence;
  return first;
}

// What has ended is not known of a record in memory while the watchdog that would note it is in a call of the driver: a
// thread that launches into a full queue has the driver's lock.
bool knows_what_has_ended(const JobSnapshot& job, const RankSnapshot& rank, const std::vector<known::Role>& roles) {
  if (!rank.flight_record || !rank.flight_record->from_memory) return true;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    if (roles[t] != known::Role::kNcclWatchdog) continue;
    const std::vector<FrameId>& frames = rank.threads[t].frames;
    if (std::any_of(frames.begin(), frames.end(),
                    [&](FrameId id) { return job.frames[id].module.find("/libcuda.so") != std::string::npos; }))
      return false;
  }
  return true;
}

// A group and its ranks whose dumps have it.
struct Seen {
  std::string text;                                // "group 0 (default_pg)"
  std::vector<int> members;                        // ranks of the job
  std::map<std::size_t, const RecordedGroup*> by;  // by rank, an index into JobSnapshot::ranks
};

std::string name_group(const RecordedGroup& group) {
  const std::string_view description = known::given_description(group.description);
  return description.empty() ? fmt::format("group {}", group.name)
                             : fmt::format("group {} ({})", group.name, description);
}

// The members of groups by their names, as the frames of c10d's functions have them. Groups that share a name are left
// out.
using NamedMembers = std::map<std::string, std::vector<int>>;

NamedMembers members_in_frames(const JobSnapshot& job) {
  NamedMembers named;
  std::set<std::string> ambiguous;
  for (const RankSnapshot& rank : job.ranks)
    for (const ThreadSnapshot& thread : rank.threads)
      for (const FrameVariables& variables : thread.variables) {
        if (!variables.group || variables.group->name.empty() || variables.group->ranks.empty()) continue;
        const auto [it, is_new] = named.emplace(variables.group->name, variables.group->ranks);
        if (it->second != variables.group->ranks) ambiguous.insert(it->first);
      }
  for (const std::string& name : ambiguous) named.erase(name);
  return named;
}

// The members of a record's groups. gloo's dumps do not state them (torch 2.11); the default group has all ranks. The
// frames of all threads are looked through only if there is another such group.
class GroupMembers {
 public:
  explicit GroupMembers(const JobSnapshot& job) : job_(job) {}

  std::vector<int> of(const RecordedGroup& group, const RankSnapshot& rank) {
    constexpr int kMaxRanks = 1 << 17;
    if (!group.ranks.empty()) return group.ranks;
    if (group.description != "default_pg") {
      if (!in_frames_) in_frames_ = members_in_frames(job_);
      const auto named = in_frames_->find(group.name);
      return named == in_frames_->end() ? group.ranks : named->second;
    }
    if (!rank.world_size || *rank.world_size > kMaxRanks) return group.ranks;
    std::vector<int> all(static_cast<std::size_t>(std::max(*rank.world_size, 0)));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

 private:
  const JobSnapshot& job_;
  std::optional<NamedMembers> in_frames_;
};

// The default groups of several libraries have the same name and members, and so may the ranks' records of them be of
// different libraries. A group whose library is not known, as it has no operations, is that of the only library, if
// any.
std::vector<Seen> groups_of(const JobSnapshot& job) {
  std::map<std::tuple<std::string, std::string, std::vector<int>>, std::map<std::string, Seen>> named;
  std::set<int> numbers;
  GroupMembers members_known(job);
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank || !rank.rank || !has_present_record(rank) || !numbers.insert(*rank.rank).second)
      continue;
    for (const RecordedGroup& group : rank.flight_record->groups) {
      std::vector<int> members = members_known.of(group, rank);
      if (std::find(members.begin(), members.end(), *rank.rank) == members.end()) continue;
      Seen& seen = named[{group.name, group.description, members}][group.library];
      seen.text = name_group(group);
      seen.members = std::move(members);
      seen.by.emplace(r, &group);
    }
  }
  std::vector<Seen> shared;
  for (auto& [name, by_library] : named) {
    auto unknown = by_library.extract("");
    if (!unknown.empty() && by_library.size() == 1) by_library.begin()->second.by.merge(unknown.mapped().by);
    for (auto& [library, seen] : by_library)
      if (seen.by.size() >= 2) shared.push_back(std::move(seen));
  }
  return shared;
}

class Records {
 public:
  Records(const JobSnapshot& job, const std::vector<RankState>& states,
          const std::vector<std::vector<known::Role>>& roles)
      : job_(job), states_(states), roles_(roles), groups_(groups_of(job)) {
    for (std::size_t i = 0; i < states.size(); ++i)
      if ((states[i].readable || states[i].recorded_only) && !states[i].unrelated) state_of_.emplace(states[i].rank, i);
    for (Seen& seen : groups_) std::erase_if(seen.by, [&](const auto& one) { return !state_of_.contains(one.first); });
    std::erase_if(groups_, [](const Seen& seen) { return seen.by.size() < 2; });
  }

  std::optional<Deadlock> explain() const {
    for (const Seen& seen : groups_)
      if (auto found = another_operation(seen)) return found;
    for (const Seen& seen : groups_)
      if (auto found = more_than_was_sent(seen)) return found;
    if (auto found = order()) return found;
    if (auto found = circle()) return found;
    for (const Seen& seen : groups_)
      if (auto found = one_call_less(seen)) return found;
    for (const Seen& seen : groups_)
      if (auto found = laggards(seen)) return found;
    for (const Seen& seen : groups_)
      if (auto found = unmatched(seen)) return found;
    return std::nullopt;
  }

 private:
  using What = std::tuple<std::string, double, std::vector<std::string>>;  // name, elements, types

  static What what_is(const RecordedOperation& operation) {
    if (!has_one_size(operation.name)) return {operation.name, 0, {}};
    return {operation.name, elements_of(operation.input_sizes), operation.input_types};
  }

  std::optional<Deadlock> another_operation(const Seen& seen) const {
    // By number: each rank's only operation under it; nullptr if it has several (a batch).
    std::map<std::int64_t, std::map<std::size_t, const RecordedOperation*>> numbers;
    for (const auto& [rank, group] : seen.by)
      for (const RecordedOperation& operation : group->operations) {
        if (operation.is_message) continue;
        const auto [it, is_new] = numbers[operation.sequence].try_emplace(rank, &operation);
        if (!is_new || operation.name == "coalesced") it->second = nullptr;
      }
    for (const auto& [number, by_rank] : numbers) {
      std::map<What, Side> sides;
      std::map<What, std::string> words;
      bool pending = false, batch = false;
      for (const auto& [rank, operation] : by_rank) {
        if (operation == nullptr) batch = true;
        if (operation == nullptr) continue;
        pending |= is_pending(*operation);
        sides[what_is(*operation)].push_back(state_of_.at(rank));
        words.emplace(what_is(*operation), describe(*operation));
      }
      if (sides.size() < 2 || batch || !pending) continue;
      if (sides.size() > 2) return std::nullopt;
      const auto& [a, a_ranks] = *sides.begin();
      const auto& [b, b_ranks] = *sides.rbegin();
      // The members whose dumps are not there may be on either side.
      const std::size_t known = a_ranks.size() + b_ranks.size(),
                        unseen = seen.members.size() > known ? seen.members.size() - known : 0;
      if (unseen > 0 && std::min(a_ranks.size(), b_ranks.size()) + unseen >= std::max(a_ranks.size(), b_ranks.size()))
        continue;
      return accuse_smaller_side(job_, states_,
                                 fmt::format("by the Flight Recorder operation {} of {}", number, seen.text),
                                 {a_ranks, words[a]}, {b_ranks, words[b]});
    }
    return std::nullopt;
  }

  // The number in which some rank waits, and the ranks that have not called it.
  struct Late {
    std::int64_t number = 0;
    Side late, waiting;
  };
  std::optional<Late> late_in(const Seen& seen) const {
    std::optional<std::int64_t> first;
    for (const auto& [rank, group] : seen.by)
      if (const auto pending = first_pending_collective(*group); pending && (!first || *pending < *first))
        first = pending;
    if (!first) return std::nullopt;
    Late found{.number = *first};
    for (const auto& [rank, group] : seen.by) {
      if (group->last_enqueued && *group->last_enqueued < *first) found.late.push_back(state_of_.at(rank));
      else if (first_pending_collective(*group) == first) found.waiting.push_back(state_of_.at(rank));
    }
    return found.late.empty() || found.waiting.empty() ? std::nullopt : std::optional(std::move(found));
  }

  // Each side is late in the group in which the other waits.
  std::optional<Deadlock> order() const {
    for (std::size_t x = 0; x < groups_.size(); ++x)
      for (std::size_t y = x + 1; y < groups_.size(); ++y) {
        const auto a = late_in(groups_[x]), b = late_in(groups_[y]);
        if (!a || !b || !std::includes(b->waiting.begin(), b->waiting.end(), a->late.begin(), a->late.end()) ||
            !std::includes(a->waiting.begin(), a->waiting.end(), b->late.begin(), b->late.end()))
          continue;
        // Ranks of other groups may wait along with one of them.
        bool equal = false;
        Side accused = smaller_side(a->waiting, b->waiting, equal);
        if (const auto odd = without_habit(a->late, groups_[y], groups_[x], b->late, groups_[x], groups_[y])) {
          accused = *odd;
          equal = false;
        }
        const bool of_all = has_all_ranks(groups_[x]) != has_all_ranks(groups_[y]);
        return accuse_side(
            accused, of_all ? Reason::kCollectiveMismatch : Reason::kProcessGroupOrder,
            fmt::format("by the Flight Recorder {} in operation {} of {}, and {} in operation {} of {}, "
                        "each of which needs the other",
                        waits(b->waiting), b->number, groups_[y].text, waits(a->waiting), a->number, groups_[x].text),
            equal);
      }
    return std::nullopt;
  }

  // It waits in what it called the last time, too: the step of a loop, and not what comes after all steps.
  static bool repeats(const RecordedGroup& group) {
    const RecordedOperation *pending = nullptr, *last = nullptr;
    for (const RecordedOperation& operation : group.operations) {
      if (operation.is_message) continue;
      if (!is_pending(operation)) last = &operation;
      else if (pending == nullptr) pending = &operation;
    }
    return pending != nullptr && last != nullptr && what_is(*pending) == what_is(*last) &&
           pending->frames == last->frames;
  }

  // Of two sides the one whose ranks all left out a call that they made in every step before, if those of the other
  // side all did as before: between two calls of `in` they called `left_out`.
  std::optional<Side> without_habit(const Side& a, const Seen& in_a, const Seen& left_out_a, const Side& b,
                                    const Seen& in_b, const Seen& left_out_b) const {
    const auto all = [&](Habit habit, const Side& side, const Seen& in, const Seen& left_out) {
      return std::all_of(side.begin(), side.end(), [&](std::size_t i) {
        const std::size_t rank = states_[i].rank;
        const FlightRecord& record = *job_.ranks[rank].flight_record;
        const auto x = in.by.find(rank), y = left_out.by.find(rank);
        if (x == in.by.end() || y == left_out.by.end() || !repeats(*x->second)) return false;
        const auto index = [&](const RecordedGroup* group) {
          return static_cast<std::size_t>(group - record.groups.data());
        };
        return habit_of(record, index(x->second), index(y->second)) == habit;
      });
    };
    if (all(Habit::kLess, a, in_a, left_out_a) && all(Habit::kKept, b, in_b, left_out_b)) return a;
    if (all(Habit::kLess, b, in_b, left_out_b) && all(Habit::kKept, a, in_a, left_out_a)) return b;
    return std::nullopt;
  }

  // Several groups, in each of which ranks wait for one that waits in the next.
  std::optional<Deadlock> circle() const {
    std::map<std::size_t, Late> stuck;  // by group
    std::map<std::size_t, std::size_t> waits_in;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (auto found = late_in(groups_[g])) {
        for (const std::size_t i : found->waiting) waits_in.emplace(i, g);
        stuck.emplace(g, std::move(*found));
      }
    std::map<std::size_t, std::set<std::size_t>> needs;
    for (const auto& [g, late] : stuck)
      for (const std::size_t i : late.late)
        if (const auto other = waits_in.find(i); other != waits_in.end()) needs[g].insert(other->second);
    constexpr std::size_t kFewest = 3, kMaxWords = 3;
    std::vector<std::size_t> in_circle;
    for (const auto& [g, others] : needs)
      if (is_in_circle(g, needs)) in_circle.push_back(g);
    if (in_circle.size() < kFewest) return std::nullopt;
    std::set<std::size_t> late, accused;
    for (const std::size_t g : in_circle) late.insert(stuck.at(g).late.begin(), stuck.at(g).late.end());
    std::string text;
    for (std::size_t n = 0; n < in_circle.size(); ++n) {
      const Late& one = stuck.at(in_circle[n]);
      for (const std::size_t i : one.waiting)
        if (late.contains(i)) accused.insert(i);
      if (n < kMaxWords)
        text += fmt::format("{}{} in operation {} of {}", n == 0 ? "" : ", ", waits(one.waiting), one.number,
                            groups_[in_circle[n]].text);
    }
    return accuse_side({accused.begin(), accused.end()}, Reason::kProcessGroupOrder,
                       fmt::format("by the Flight Recorder each of {} groups needs a rank that waits in another: {}{}",
                                   in_circle.size(), text, in_circle.size() > kMaxWords ? ", ..." : ""),
                       true);
  }
  bool has_all_ranks(const Seen& seen) const {
    const auto world = job_.ranks[seen.by.begin()->first].world_size;
    return world && seen.members.size() == static_cast<std::size_t>(std::max(*world, 0));
  }
  std::string waits(const Side& side) const {
    return name_side(job_, states_, side) + (side.size() == 1 ? " waits" : " wait");
  }

  // An exchange between all of a group that has ended at some of its ranks, while others expect more than was sent.
  std::optional<Deadlock> more_than_was_sent(const Seen& seen) const {
    if (seen.by.size() != seen.members.size()) return std::nullopt;
    std::optional<std::int64_t> number;
    for (const auto& [rank, group] : seen.by)
      if (const RecordedOperation* first = first_pending(*group);
          first != nullptr && first->name == "all_to_all" && knows_what_has_ended(job_, job_.ranks[rank], roles_[rank]))
        number = first->sequence;
    if (!number) return std::nullopt;
    Side waiting, ended;
    double sent = 0, expected = 0;
    for (const auto& [rank, group] : seen.by) {
      const auto one = std::find_if(group->operations.begin(), group->operations.end(), [&](const auto& operation) {
        return !operation.is_message && operation.sequence == *number && operation.name == "all_to_all";
      });
      if (one == group->operations.end()) return std::nullopt;
      (is_pending(*one) ? waiting : ended).push_back(state_of_.at(rank));
      sent += elements_of(one->input_sizes);
      expected += elements_of(one->output_sizes);
    }
    if (ended.empty() || expected <= sent) return std::nullopt;
    return accuse_side(
        waiting, Reason::kCollectiveMismatch,
        fmt::format("by the Flight Recorder the ranks send {:.0f} elements and expect {:.0f} in operation "
                    "{} of {}, all_to_all, which has ended at {}",
                    sent, expected, *number, seen.text, name_side(job_, states_, ended)),
        false);
  }

  // Ranks that have called one operation less of a group, and wait in one of another group that the others have called
  // as well: it cannot end, as the others' GPUs are in the first.
  std::optional<Deadlock> one_call_less(const Seen& seen) const {
    const auto found = late_in(seen);
    if (!found || found->late.size() + found->waiting.size() != seen.members.size()) return std::nullopt;
    for (const Seen& other : groups_) {
      if (&other == &seen) continue;
      std::optional<std::int64_t> number;
      bool all_call = true;
      for (const Side* side : {&found->late, &found->waiting})
        for (const std::size_t i : *side) {
          const auto in = other.by.find(states_[i].rank);
          const auto first = in == other.by.end() ? std::nullopt : first_pending_collective(*in->second);
          all_call &= first && (!number || first == number);
          number = first;
        }
      if (!all_call) continue;
      bool equal = false;
      const Side accused = smaller_side(found->late, found->waiting, equal);
      return accuse_side(
          accused, Reason::kCollectiveMismatch,
          fmt::format("by the Flight Recorder {} called operation {} of {}, which {} not, and all wait in "
                      "operation {} of {}",
                      has(found->waiting), found->number, seen.text, has(found->late), *number, other.text),
          equal);
    }
    return std::nullopt;
  }

  std::string has(const Side& side) const {
    return name_side(job_, states_, side) + (side.size() == 1 ? " has" : " have");
  }
  bool waits_in_something_recorded(std::size_t state) const {
    for (const RecordedGroup& group : job_.ranks[states_[state].rank].flight_record->groups)
      if (first_pending(group) != nullptr) return true;
    return false;
  }

  std::optional<Deadlock> laggards(const Seen& seen) const {
    const auto found = late_in(seen);
    if (!found || found->late.size() * 2 > seen.by.size()) return std::nullopt;
    // A rank that waits in another operation has its own reason.
    for (const std::size_t i : found->late)
      if ((!states_[i].recorded_only && states_[i].doing.activity != known::Activity::kGpuWait) ||
          states_[i].gpu.in_collective() || waits_in_something_recorded(i))
        return std::nullopt;
    const bool at_same_place = std::any_of(found->waiting.begin(), found->waiting.end(), [&](std::size_t i) {
      return place_key(job_, states_[i]) == place_key(job_, states_[found->late.front()]);
    });
    const RecordedGroup& group = *seen.by.at(states_[found->waiting.front()].rank);
    const std::string text = fmt::format("not called operation {} of {}, {}, in which {}", found->number, seen.text,
                                         describe(operation(group, found->number)), waits(found->waiting));
    const std::string late = name_side(job_, states_, found->late) + (found->late.size() == 1 ? " has " : " have ");
    const bool may_be_on_time = std::all_of(found->late.begin(), found->late.end(), [&](std::size_t i) {
      return has_paused_for_longer(job_.ranks[states_[i].rank]);
    });
    Deadlock laggards =
        may_be_on_time
            ? undecided(
                  fmt::format("by the Flight Recorder {}{}; but before, {}gone without a call for longer than now",
                              late, text, late))
            : accuse_side(found->late, at_same_place ? Reason::kBehind : Reason::kGpuWait,
                          fmt::format("by the Flight Recorder {}{}", found->late.size() == 1 ? "it has " : late, text),
                          false);
    if (may_be_on_time) {
      laggards.candidates = found->late;
      laggards.reason_of_candidates = Reason::kGpuWait;
      laggards.would_decide = "whether it calls that operation: look again later, or with --gpu";
    }
    laggards.may_be_a_step = true;  // what their GPUs compute may take longer than all samples
    return laggards;
  }
  static const RecordedOperation& operation(const RecordedGroup& group, std::int64_t number) {
    return *std::find_if(group.operations.begin(), group.operations.end(), [&](const RecordedOperation& one) {
      return one.sequence == number && !one.is_message && is_pending(one);
    });
  }

  std::optional<Deadlock> unmatched(const Seen& seen) const {
    std::map<std::size_t, const RecordedGroup*> groups;
    std::map<std::size_t, std::size_t> state_at;
    for (const auto& [rank, group] : seen.by) {
      if (!knows_what_has_ended(job_, job_.ranks[rank], roles_[rank])) return std::nullopt;
      const auto found = std::find(seen.members.begin(), seen.members.end(), *job_.ranks[rank].rank);
      const auto place = static_cast<std::size_t>(found - seen.members.begin());
      groups[place] = group;
      state_at[place] = state_of_.at(rank);
    }
    const Exchanges at = stuck_exchanges(groups);
    Side direct, circle;
    std::map<std::size_t, std::set<std::size_t>> waiting_for;  // by the place of a rank in a collective
    std::map<std::size_t, std::set<std::size_t>> needs;
    std::string words;
    for (const auto& [place, one] : at) {
      if (one.steps.empty() || one.steps.front().is_collective) continue;
      for (const std::size_t peer : peers_without(one, at)) {
        if (peer == place) continue;
        if (at.at(peer).steps.empty() || at.at(peer).steps.front().is_collective) waiting_for[peer].insert(place);
        else needs[place].insert(peer);
      }
      words += fmt::format("{}{} in {}", words.empty() ? "" : ", ", waits({state_at[place]}),
                           one.steps.front().messages.front()->name);
    }
    // Several ranks wait for one that has gone on to a collective, all for it or in a line.
    for (const auto& [peer, places] : waiting_for) {
      if (places.size() >= 2 || has_left_a_line(peer, *places.begin(), needs, state_at))
        return accuse_side({state_at[peer]}, Reason::kCollectiveMismatch,
                           fmt::format("by the Flight Recorder {} of {}, which it has not called", words, seen.text),
                           false);
      for (const std::size_t place : places) direct.push_back(state_at[place]);
    }
    for (const auto& [place, peers] : needs)
      if (is_in_circle(place, needs)) circle.push_back(state_at[place]);
    if (direct.empty() && (circle.size() < 2 || do_the_same(circle, at, state_at))) return std::nullopt;
    std::sort(direct.begin(), direct.end());
    std::sort(circle.begin(), circle.end());
    return accuse_side(
        direct.empty() ? circle : direct, Reason::kUnmatchedP2p,
        fmt::format("by the Flight Recorder {} of {}, which the other rank has not called", words, seen.text), false);
  }

  // One waits for `peer` and another one for it, and so on, at one place of the program and all for the rank at the
  // same distance, as stages do; and `peer` is in a collective at a later line. All are given by their places in the
  // group.
  bool has_left_a_line(std::size_t peer, std::size_t first, const std::map<std::size_t, std::set<std::size_t>>& needs,
                       const std::map<std::size_t, std::size_t>& state_at) const {
    const RankState& left = states_[state_at.at(peer)];
    const std::string place = place_key(job_, states_[state_at.at(first)]);
    const std::size_t size = state_at.rbegin()->first + 1, distance = (first + size - peer) % size;
    std::size_t length = 0;
    for (std::size_t at = first;; at = (at + distance) % size) {
      const auto peers = needs.find(at);
      const bool waits = at == first || (peers != needs.end() && peers->second.size() == 1 &&
                                         peers->second.contains((at + size - distance) % size));
      if (!waits || place_key(job_, states_[state_at.at(at)]) != place) break;
      if (!has_passed(job_, left, states_[state_at.at(at)])) return false;
      ++length;
    }
    return length >= 2 && left.in_collective();
  }

  // All of the group receive, or all send, at one place: no rank differs.
  bool do_the_same(const Side& circle, const Exchanges& at, std::map<std::size_t, std::size_t>& state_at) const {
    if (circle.size() != at.size()) return false;
    std::set<std::set<std::string>> kinds;  // of the first messages that each has called
    std::set<std::string> places;
    for (const auto& [place, one] : at) {
      std::set<std::string> of_rank;
      for (const RecordedOperation& message : one.group->operations)
        if (is_pending(message) && message.is_message && message.sequence == first_pending(*one.group)->sequence)
          of_rank.insert(message.name.substr(0, std::string_view("send").size()));
      kinds.insert(std::move(of_rank));
      places.insert(place_key(job_, states_[state_at[place]]));
    }
    return kinds.size() == 1 && kinds.begin()->size() == 1 && places.size() == 1;
  }

  const JobSnapshot& job_;
  const std::vector<RankState>& states_;
  const std::vector<std::vector<known::Role>>& roles_;
  std::vector<Seen> groups_;
  std::map<std::size_t, std::size_t> state_of_;  // by rank
};

std::string position_of(const RecordedGroup& group) {
  const auto number = [](const std::optional<std::int64_t>& last) { return last ? std::to_string(*last) : "none"; };
  std::string text = fmt::format("called {}, ended {}", number(group.last_enqueued), number(group.last_completed));
  if (const RecordedOperation* first = first_pending(group)) text += ", waits in " + describe(*first);
  return text;
}

template <class Counts>
std::set<std::size_t> ranks_ahead(const JobSnapshot& job, Counts counts) {
  std::set<std::size_t> ahead;
  for (const Seen& seen : groups_of(job)) {
    std::int64_t least = INT64_MAX;
    for (const auto& [rank, group] : seen.by) least = std::min(least, group->last_enqueued.value_or(0));
    for (const auto& [rank, group] : seen.by)
      if (std::any_of(group->operations.begin(), group->operations.end(), [&](const auto& operation) {
            return is_pending(operation) && !operation.is_message && operation.sequence > least && counts(operation);
          }))
        ahead.insert(rank);
  }
  return ahead;
}

}  // namespace

bool has_present_record(const RankSnapshot& rank) {
  const double most = rank.source == Source::kCore ? 15 * kMinuteMs : kMinuteMs;
  if (!rank.flight_record) return false;
  // Files that are named together are of one time: what they say of it is lost where they were copied.
  if (rank.source == Source::kDump && !rank.flight_record->age_ms) return true;
  return rank.flight_record->age_ms && std::abs(*rank.flight_record->age_ms) <= most;
}

std::optional<Deadlock> explain_by_flight_records(const JobSnapshot& job, const std::vector<RankState>& states,
                                                  const std::vector<std::vector<known::Role>>& roles) {
  return Records(job, states, roles).explain();
}

namespace {

// The only group in which the rank has operations that have not ended, if the record is of this time and shows that.
const RecordedGroup* only_pending_group(const JobSnapshot& job, const RankSnapshot& rank,
                                        const std::vector<known::Role>& roles) {
  if (!has_present_record(rank) || !knows_what_has_ended(job, rank, roles)) return nullptr;
  const RecordedGroup* only = nullptr;
  for (const RecordedGroup& group : rank.flight_record->groups) {
    if (first_pending(group) == nullptr) continue;
    if (only != nullptr) return nullptr;
    only = &group;
  }
  return only;
}

}  // namespace

std::string describe_recorded_wait(const JobSnapshot& job, const RankSnapshot& rank,
                                   const std::vector<known::Role>& roles) {
  const RecordedGroup* group = only_pending_group(job, rank, roles);
  if (group == nullptr) return "";
  const RecordedOperation& operation = *first_pending(*group);
  return fmt::format("{}, number {} of {}", operation.name, operation.sequence, name_group(*group));
}

std::vector<int> members_of_recorded_wait(const JobSnapshot& job, const RankSnapshot& rank,
                                          const std::vector<known::Role>& roles) {
  const RecordedGroup* group = only_pending_group(job, rank, roles);
  return group == nullptr ? std::vector<int>() : GroupMembers(job).of(*group, rank);
}

std::set<std::size_t> ranks_ahead_by_record(const JobSnapshot& job) {
  return ranks_ahead(job, [](const RecordedOperation&) { return true; });
}

std::set<std::size_t> ranks_that_need_all_by_record(const JobSnapshot& job) {
  return ranks_ahead(job, [](const RecordedOperation& operation) { return !has_root(operation.name); });
}

std::vector<int> members_without_record(const JobSnapshot& job) {
  std::set<int> with, members;
  GroupMembers members_known(job);
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.kind != RankKind::kRank || !rank.rank || !has_present_record(rank)) continue;
    with.insert(*rank.rank);
    for (const RecordedGroup& group : rank.flight_record->groups)
      if (first_pending(group) != nullptr) {
        const std::vector<int> all = members_known.of(group, rank);
        members.insert(all.begin(), all.end());
      }
  }
  std::vector<int> without;
  std::set_difference(members.begin(), members.end(), with.begin(), with.end(), std::back_inserter(without));
  return without;
}

std::vector<RecordedDifference> recorded_differences(const JobSnapshot& job) {
  std::vector<RecordedDifference> differences;
  for (const Seen& seen : groups_of(job)) {
    std::map<std::string, std::vector<std::size_t>> positions;
    for (const auto& [rank, group] : seen.by) positions[position_of(*group)].push_back(rank);
    if (positions.size() < 2) continue;
    RecordedDifference& difference = differences.emplace_back();
    difference.group = seen.text;
    for (auto& [text, ranks] : positions) difference.positions.push_back({std::move(ranks), text});
    std::sort(difference.positions.begin(), difference.positions.end(),
              [](const RecordedPosition& a, const RecordedPosition& b) { return a.ranks < b.ranks; });
  }
  return differences;
}

}  // namespace rankstacks::analyzers
