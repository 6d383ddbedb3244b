#include "capture/job_groups.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "capture/job_names.h"

namespace rankstacks::capture {
namespace {

// Process trees are less deep; the table is not read in one instant, so it may contain a cycle.
constexpr int kMaxDepth = 64;

constexpr JobName kSchedulers[] = {JobName::kSlurmJob, JobName::kFlux, JobName::kPbs, JobName::kLsf, JobName::kRay};
// Each MPI launcher gives another of these to each of its jobs; srun gives one to each step.
constexpr JobName kLaunched[] = {JobName::kPmix, JobName::kOpenMpi, JobName::kPmi, JobName::kSlurmStep};

struct Member {
  Pid pid = 0;
  RankIdentity identity;
  JobNames names;
  ProcessPlace place;
  std::uint64_t start_ticks = 0;
  Pid launcher = 0;
  bool orphan = false;               // its launcher has ended, and is not known
  bool may_be_left_over = false;     // an orphan, or a child of the process that adopts the orphans of its namespace
  std::uint64_t launcher_start = 0;  // of a process that has started several ranks; else 0
  std::optional<std::size_t> above;  // the member that has started it
};

// What the ranks of a group agree on. Joining two groups makes one that agrees on what either of them states.
struct Group {
  explicit Group(const Member& member)
      : names(member.names),
        user(member.place.user),
        network(member.place.network),
        world_size(member.identity.world_size),
        of_mpi(member.identity.is_of_mpi()),
        may_be_left_over(member.may_be_left_over),
        last_start(member.start_ticks),
        first_launcher_start(member.launcher_start) {
    if (member.identity.rank) numbers.insert(*member.identity.rank);
  }

  void join(Group&& other) {
    // If one of the two has a loopback address, the other one's is the same place as others name it.
    if (const std::string& place = other.names[JobName::kMeeting];
        !place.empty() && (names[JobName::kMeeting].empty() || names.meets_locally)) {
      names[JobName::kMeeting] = place;
      names.meets_locally = other.names.meets_locally;
    }
    for (std::size_t i = 0; i < kJobNames; ++i)
      if (names.of[i].empty()) names.of[i] = std::move(other.names.of[i]);
    if (names.meeting_from_elsewhere.empty())
      names.meeting_from_elsewhere = std::move(other.names.meeting_from_elsewhere);
    if (network.empty()) network = std::move(other.network);
    if (!world_size) world_size = other.world_size;
    of_mpi = of_mpi || other.of_mpi;
    may_be_left_over = may_be_left_over && other.may_be_left_over;
    last_start = std::max(last_start, other.last_start);
    if (first_launcher_start == 0 ||
        (other.first_launcher_start != 0 && other.first_launcher_start < first_launcher_start))
      first_launcher_start = other.first_launcher_start;
    if (numbers.size() < other.numbers.size()) numbers.swap(other.numbers);
    numbers.insert(other.numbers.begin(), other.numbers.end());
  }

  JobNames names;
  std::optional<long> user;
  std::string network;
  std::optional<int> world_size;
  std::set<int> numbers;
  bool of_mpi;            // a rank of it has its number from an MPI launcher
  bool may_be_left_over;  // all of it
  std::uint64_t last_start, first_launcher_start;
};

bool contradict(const std::string& a, const std::string& b) { return !a.empty() && !b.empty() && a != b; }

bool share(const std::string& a, const std::string& b) { return !a.empty() && a == b; }

// Whether they meet at one place; a loopback address also means the host's name, which other containers use for it.
bool meet(const JobNames& a, const JobNames& b) {
  const std::string &at = a[JobName::kMeeting], &other = b[JobName::kMeeting];
  return share(at, other) || share(a.meeting_from_elsewhere, other) || share(at, b.meeting_from_elsewhere);
}

bool meet_across_networks(const JobNames& a, const JobNames& b) {
  return meet(a, b) && !(a.meets_locally && b.meets_locally);
}

bool names_separate(const Group& a, const Group& b) {
  const auto differ = [&](JobName name) { return contradict(a.names[name], b.names[name]); };
  const bool same_place = meet(a.names, b.names);
  if (!same_place && differ(JobName::kMeeting)) return true;
  if (std::any_of(std::begin(kSchedulers), std::end(kSchedulers), differ)) return true;
  if (differ(JobName::kTorchelastic) || differ(JobName::kKubernetes)) return true;
  // Ranks that meet may each have been started by a step of its own. MPI's ranks do not meet at MASTER_ADDR, although
  // they may have inherited it.
  if (same_place && !(a.of_mpi && b.of_mpi)) return false;
  return std::any_of(std::begin(kLaunched), std::end(kLaunched), differ);
}

bool networks_separate(const Group& a, const Group& b) {
  return contradict(a.network, b.network) && !meet_across_networks(a.names, b.names) &&
         !share(a.names[JobName::kPmix], b.names[JobName::kPmix]) &&
         !share(a.names[JobName::kKubernetes], b.names[JobName::kKubernetes]);
}

bool have_a_number_in_common(const Group& a, const Group& b) {
  const auto& [few, many] =
      a.numbers.size() < b.numbers.size() ? std::tie(a.numbers, b.numbers) : std::tie(b.numbers, a.numbers);
  return std::any_of(few.begin(), few.end(), [&many = many](int number) { return many.contains(number); });
}

// Whether `a` is what an earlier job has left behind: its launcher has ended, and that of `b` was started later.
bool is_left_over_before(const Group& a, const Group& b) {
  return a.may_be_left_over && b.first_launcher_start != 0 && a.last_start < b.first_launcher_start;
}

bool may_join(const Group& a, const Group& b) {
  return a.user == b.user && !have_a_number_in_common(a, b) &&
         !(a.world_size && b.world_size && a.world_size != b.world_size) && !names_separate(a, b) &&
         !networks_separate(a, b) && !is_left_over_before(a, b) && !is_left_over_before(b, a);
}

bool may_nest(const Group& a, const Group& b) { return a.user == b.user && !have_a_number_in_common(a, b); }

// What the processes above a rank say of who has started it.
class Ancestry {
 public:
  Ancestry(const std::vector<PlannedTarget>& plan, const ProcessTable& table, const ProcessFacts& facts)
      : table_(table), facts_(facts) {
    for (const PlannedTarget& target : plan)
      if (target.kind == RankKind::kRank) ranks_.emplace(target.pid, ranks_.size());
  }

  void look_up(Member& member) {
    const ProcessEntry* entry = table_.find(member.pid);
    bool wrapped = true;  // so far everything above has the same number: a shell, numactl
    int depth = 0;
    while (entry != nullptr && entry->parent > 0 && depth++ < kMaxDepth) {
      const Pid parent = entry->parent;
      if (const auto rank = ranks_.find(parent); rank != ranks_.end() && parent != member.pid && !member.above)
        member.above = rank->second;
      entry = table_.find(parent);
      if (!wrapped) continue;
      const RankIdentity above = identity(parent);
      wrapped = above.rank && above.rank == member.identity.rank && above.precedence == member.identity.precedence;
      if (!wrapped) member.launcher = parent;
    }
    const ProcessEntry* launcher = table_.find(member.launcher);
    member.orphan = member.launcher <= 1 || launcher == nullptr || launcher->name == "systemd";
    member.may_be_left_over = member.orphan || (facts_.place && facts_.place(member.launcher).adopts);
  }

 private:
  const RankIdentity& identity(Pid pid) {
    const auto [it, fresh] = identities_.try_emplace(pid);
    if (fresh && table_.find(pid) != nullptr) it->second = identity_from_environment(facts_.environment(pid));
    return it->second;
  }

  const ProcessTable& table_;
  const ProcessFacts& facts_;
  std::map<Pid, std::size_t> ranks_;  // their indices among the ranks of the plan
  std::map<Pid, RankIdentity> identities_;
};

std::vector<Member> members_of(const std::vector<PlannedTarget>& plan, const ProcessTable& table,
                               const ProcessFacts& facts) {
  std::vector<Member> members;
  Ancestry ancestry(plan, table, facts);
  std::map<Pid, int> started;
  for (const PlannedTarget& target : plan) {
    if (target.kind != RankKind::kRank) continue;
    Member& member = members.emplace_back();
    member.pid = target.pid;
    member.identity = target.identity;
    member.names = job_names_of(facts.environment(target.pid), target.identity);
    if (facts.place) member.place = facts.place(target.pid);
    if (const ProcessEntry* entry = table.find(target.pid)) member.start_ticks = entry->start_ticks;
    ancestry.look_up(member);
    if (!member.orphan) ++started[member.launcher];
  }
  for (Member& member : members)
    if (!member.orphan && started[member.launcher] > 1)
      member.launcher_start = table.find(member.launcher)->start_ticks;
  return members;
}

// Joins the groups of members, beginning with one group for each.
class Joining {
 public:
  explicit Joining(const std::vector<Member>& members) : members_(members) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      of_.push_back(i);
      groups_.emplace_back(members[i]);
    }
  }

  // Joins members for which `keys` has one in common, if their groups may be joined; those first that were started
  // shortly after each other. A member is only compared with the next ones in time, so that a user with very many
  // processes cannot make this take long.
  void by(const std::function<std::vector<std::string>(const Member&)>& keys) {
    constexpr std::size_t kNeighbours = 16;
    std::map<std::string, std::vector<std::size_t>> linked;
    for (std::size_t i = 0; i < members_.size(); ++i)
      for (std::string& key : keys(members_[i])) linked[std::move(key)].push_back(i);
    struct Pair {
      std::uint64_t ticks;
      Pid pids;
      std::size_t one, other;
    };
    std::vector<Pair> pairs;
    for (auto& [key, of_key] : linked) {
      std::sort(of_key.begin(), of_key.end(), [&](std::size_t a, std::size_t b) { return age(a) < age(b); });
      for (std::size_t i = 0; i < of_key.size(); ++i)
        for (std::size_t n = i + 1; n < std::min(of_key.size(), i + 1 + kNeighbours); ++n) {
          const Member &one = members_[of_key[i]], &other = members_[of_key[n]];
          pairs.push_back({other.start_ticks - one.start_ticks, std::abs(other.pid - one.pid), of_key[i], of_key[n]});
        }
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
      return std::tie(a.ticks, a.pids) < std::tie(b.ticks, b.pids);
    });
    for (const Pair& pair : pairs) join(pair.one, pair.other, may_join);
  }

  void nested() {
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (members_[i].above) join(*members_[i].above, i, may_nest);
  }

  // The members of each group.
  std::map<std::size_t, std::vector<std::size_t>> take() {
    std::map<std::size_t, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < members_.size(); ++i) groups[group_of(i)].push_back(i);
    return groups;
  }

 private:
  std::pair<std::uint64_t, Pid> age(std::size_t i) const { return {members_[i].start_ticks, members_[i].pid}; }

  std::size_t group_of(std::size_t i) {
    while (of_[i] != i) i = of_[i] = of_[of_[i]];
    return i;
  }

  void join(std::size_t one, std::size_t other, bool (*may)(const Group&, const Group&)) {
    one = group_of(one);
    other = group_of(other);
    if (one == other || !may(groups_[one], groups_[other])) return;
    groups_[one].join(std::move(groups_[other]));
    of_[other] = one;
  }

  const std::vector<Member>& members_;
  std::vector<std::size_t> of_;  // a tree to each group's first member
  std::vector<Group> groups_;
};

std::string user_key(const Member& member) { return member.place.user ? std::to_string(*member.place.user) : "?"; }

void join_all(Joining& joining) {
  using Keys = std::vector<std::string>;
  const auto value = [](const Member& member, JobName name) {
    const std::string& text = member.names[name];
    return text.empty() ? Keys{} : Keys{fmt::format("{} {} {}", user_key(member), static_cast<int>(name), text)};
  };
  joining.by([](const Member& m) {
    return Keys{fmt::format("{} {} {} {} {} {} {}", user_key(m), m.orphan ? 0 : m.launcher,
                            m.orphan ? m.place.cgroups : std::string(), m.identity.world_size.value_or(0),
                            m.place.network, m.names.restart, fmt::join(m.names.of, "\n"))};
  });
  joining.by([](const Member& m) {
    Keys keys;
    for (const std::string& place : {m.names[JobName::kMeeting], m.names.meeting_from_elsewhere})
      if (!place.empty()) keys.push_back(user_key(m) + " " + place);
    return keys;
  });
  for (const JobName name :
       {JobName::kPmix, JobName::kOpenMpi, JobName::kPmi, JobName::kTorchelastic, JobName::kKubernetes})
    joining.by([&](const Member& m) { return value(m, name); });
  joining.by([](const Member& m) { return m.orphan ? Keys{} : Keys{fmt::format("{} {}", user_key(m), m.launcher)}; });
  joining.by([&](const Member& m) { return value(m, JobName::kSlurmStep); });
  joining.by(
      [](const Member& m) { return m.orphan ? Keys{fmt::format("{} {}", user_key(m), m.place.cgroups)} : Keys{}; });
  joining.nested();
}

// The value that all of its members have, of those that have any; else empty. A loopback address counts only if all
// members meet at one: others name the same place by its host.
std::string agreed(const std::vector<const Member*>& members, JobName name) {
  const bool elsewhere = name == JobName::kMeeting && std::any_of(members.begin(), members.end(), [](const Member* m) {
                           return !m->names.meets_locally && !m->names[JobName::kMeeting].empty();
                         });
  std::string value;
  for (const Member* member : members) {
    if (elsewhere && member->names.meets_locally) continue;
    if (contradict(value, member->names[name])) return {};
    if (value.empty()) value = member->names[name];
  }
  return value;
}

// What srun starts to wait for a person: it has the variables of a rank.
bool is_shell(const std::string& name) {
  return is_one_of(name, {"bash", "sh", "dash", "zsh", "ksh", "csh", "tcsh", "fish", "tmux", "screen"});
}

RankGroup describe(std::vector<const Member*> members, const ProcessTable& table) {
  const auto number = [](const Member* m) { return m->identity.rank.value_or(std::numeric_limits<int>::max()); };
  std::sort(members.begin(), members.end(), [&](const Member* a, const Member* b) {
    return std::pair(number(a), a->pid) < std::pair(number(b), b->pid);
  });
  RankGroup group;
  group.user = members.front()->place.user;
  group.start_ticks = members.front()->start_ticks;
  group.launcher = members.front()->orphan ? std::nullopt : std::optional(members.front()->launcher);
  for (const Member* member : members) {
    group.ranks.push_back(member->pid);
    if (member->identity.rank) group.numbers.push_back(*member->identity.rank);
    if (member->identity.world_size)
      group.world_size = std::max(group.world_size.value_or(0), *member->identity.world_size);
    group.start_ticks = std::min(group.start_ticks, member->start_ticks);
    if (member->orphan || member->launcher != group.launcher) group.launcher.reset();
  }
  group.only_shells = std::all_of(members.begin(), members.end(), [&](const Member* member) {
    const ProcessEntry* entry = table.find(member->pid);
    return member->identity.precedence == RankIdentity::kSlurm && entry != nullptr && is_shell(entry->name);
  });
  for (std::size_t i = 0; i < kJobNames; ++i) {
    const auto name = static_cast<JobName>(i);
    const std::string value = agreed(members, name);
    if (name == JobName::kSlurmJob && !value.empty()) group.slurm_job = value;
    if (std::string shown = shown_job_name(name, value); !shown.empty()) group.names.push_back(std::move(shown));
  }
  return group;
}

}  // namespace

std::vector<RankGroup> group_ranks(const std::vector<PlannedTarget>& plan, const ProcessTable& table,
                                   const ProcessFacts& facts) {
  const std::vector<Member> members = members_of(plan, table, facts);
  Joining joining(members);
  join_all(joining);
  std::vector<RankGroup> groups;
  for (const auto& [first, indices] : joining.take()) {
    std::vector<const Member*> of_group;
    for (const std::size_t i : indices) of_group.push_back(&members[i]);
    groups.push_back(describe(std::move(of_group), table));
  }
  std::sort(groups.begin(), groups.end(), [](const RankGroup& a, const RankGroup& b) {
    return std::tuple(a.start_ticks, a.ranks.front()) < std::tuple(b.start_ticks, b.ranks.front());
  });
  return groups;
}

}  // namespace rankstacks::capture
