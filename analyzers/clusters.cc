// Classes of equal normalised stacks, per role and kind of process.
//
// Odd: within one role of the ranks (children never count), a class that is smaller than the largest class, and that
// together with all classes no larger than itself covers at most half of the ranks that have the role (or, if the
// stages of a pipeline are known, half of those of one stage). So 7:1 and 5:3 have an odd class, 2:2 has none, 2:1:1
// has two, 3:3:1 has one, and if everything differs (2:1:1:1:1:1:1) nothing is odd. If ranks have several threads of
// a role, a class is odd only if one of its ranks has no thread in the largest class: an additional thread is not a
// thread at another place.
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <unordered_map>

#include "analyzers/analysis.h"
#include "analyzers/coordinates.h"
#include "analyzers/tree.h"

namespace rankstacks::analyzers {
namespace {

using Member = std::pair<std::size_t, std::size_t>;  // (rank index, thread index)

struct Group {
  std::vector<Member> members;
  std::vector<std::size_t> stack_of;  // by member, an index into `DistinctStacks`
};

// The normalised stacks of threads, once for all threads that share their frames.
class DistinctStacks {
 public:
  explicit DistinctStacks(const FrameTable& frames) : frames_(frames) {}

  std::size_t add(const ThreadSnapshot& thread) {
    auto& numbers = waits_for_lock(thread) ? of_those_at_a_lock_ : of_others_;
    const auto [it, is_new] = numbers.try_emplace(thread.frames.identity(), stacks_.size());
    if (is_new) stacks_.push_back(normalized_stack(thread, frames_));
    return it->second;
  }
  std::size_t size() const { return stacks_.size(); }
  const std::vector<StackItem>& operator[](std::size_t i) const { return stacks_[i]; }

 private:
  NormalizedFrames frames_;
  std::vector<std::vector<StackItem>> stacks_;
  std::unordered_map<const void*, std::size_t> of_those_at_a_lock_, of_others_;  // numbers, by the frames' identity
};

const ThreadSnapshot& thread_of(const JobSnapshot& job, const Member& m) {
  return job.ranks[m.first].threads[m.second];
}

// A stack whose unwinding ended early lacks outer frames, which says nothing about where the thread is. Such a class
// joins the class that has the same inner frames, if there is exactly one. At least two frames must agree; one is too
// little evidence.
void join_partial_classes(const JobSnapshot& job, const Group& group, const DistinctStacks& stacks,
                          std::vector<std::vector<std::size_t>>& classes) {
  constexpr std::size_t kLeastFrames = 2;
  auto is_partial = [&](const std::vector<std::size_t>& c) {
    return std::all_of(c.begin(), c.end(), [&](std::size_t m) {
      const StackEnd end = thread_of(job, group.members[m]).stack_end;
      return end != StackEnd::kComplete && end != StackEnd::kDepthLimit;
    });
  };
  for (std::size_t i = 0; i < classes.size();) {
    const std::vector<StackItem>& inner = stacks[group.stack_of[classes[i].front()]];
    std::size_t match = classes.size(), matches = 0;
    if (inner.size() >= kLeastFrames && is_partial(classes[i])) {
      for (std::size_t k = 0; k < classes.size(); ++k) {
        const std::vector<StackItem>& outer = stacks[group.stack_of[classes[k].front()]];
        if (k == i || outer.size() <= inner.size() || is_partial(classes[k])) continue;
        if (!std::equal(inner.begin(), inner.end(), outer.begin(),
                        [](const StackItem& a, const StackItem& b) { return a.norm == b.norm; }))
          continue;
        match = k;
        ++matches;
      }
    }
    if (matches == 1) {
      classes[match].insert(classes[match].end(), classes[i].begin(), classes[i].end());
      classes.erase(classes.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

using Ranks = std::vector<std::size_t>;  // ascending

void sort_unique(Ranks& ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
}

// By class: whether it is odd among these ranks.
std::vector<bool> odd_among(const std::vector<Ranks>& classes) {
  Ranks all, in_largest;
  std::size_t largest = 0;
  for (const Ranks& ranks : classes) {
    all.insert(all.end(), ranks.begin(), ranks.end());
    largest = std::max(largest, ranks.size());
  }
  for (const Ranks& ranks : classes)
    if (ranks.size() == largest) in_largest.insert(in_largest.end(), ranks.begin(), ranks.end());
  sort_unique(all);
  sort_unique(in_largest);
  // The smallest first: what classes no larger than one cover grows from one to the next.
  std::vector<std::size_t> order(classes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return classes[a].size() < classes[b].size(); });
  std::vector<bool> odd(classes.size(), false), is_covered(all.empty() ? 0 : all.back() + 1, false);
  std::size_t covered = 0;
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const std::size_t size = classes[order[begin]].size();
    if (size == largest) break;
    for (; end < order.size() && classes[order[end]].size() == size; ++end)
      for (const std::size_t rank : classes[order[end]]) {
        covered += is_covered[rank] ? 0 : 1;
        is_covered[rank] = true;
      }
    for (std::size_t i = begin; i < end; ++i) {
      const Ranks& one = classes[order[i]];
      odd[order[i]] =
          covered * 2 <= all.size() && !std::includes(in_largest.begin(), in_largest.end(), one.begin(), one.end());
    }
  }
  return odd;
}

// `stage_of` is indexed by rank; empty if all ranks should be alike.
void mark_odd(std::vector<Cluster>& clusters, const std::vector<int>& stage_of) {
  std::map<int, std::map<std::size_t, Ranks>> stages;  // the ranks of each class, by its index
  for (std::size_t c = 0; c < clusters.size(); ++c)
    for (const std::size_t r : clusters[c].ranks) stages[stage_of.empty() ? 0 : stage_of[r]][c].push_back(r);
  for (const auto& [stage, by_cluster] : stages) {
    std::vector<Ranks> classes;
    for (const auto& [c, ranks] : by_cluster) classes.push_back(ranks);
    const std::vector<bool> odd = odd_among(classes);
    std::size_t i = 0;
    for (const auto& [c, ranks] : by_cluster) clusters[c].odd |= odd[i++];
  }
}

Cluster cluster_of(const JobSnapshot& job, const Group& group, known::Role role,
                   const std::vector<std::size_t>& members) {
  Cluster cluster;
  cluster.role = role;
  cluster.members.reserve(members.size());
  for (const std::size_t m : members) {
    cluster.members.push_back(group.members[m]);
    if (const std::size_t rank = group.members[m].first; cluster.ranks.empty() || cluster.ranks.back() != rank)
      cluster.ranks.push_back(rank);
  }
  sort_unique(cluster.ranks);
  cluster.frames = thread_of(job, cluster.members.front()).frames;
  // The first stays, since its frames are the cluster's.
  std::sort(cluster.members.begin() + 1, cluster.members.end());
  return cluster;
}

}  // namespace

std::vector<Cluster> cluster_threads(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles) {
  DistinctStacks stacks(job.frames);
  const std::vector<int> stage_of = pipeline_stages(job);
  std::map<std::pair<RankKind, known::Role>, Group> groups;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (std::size_t t = 0; t < job.ranks[r].threads.size(); ++t) {
      Group& group = groups[{job.ranks[r].kind, roles[r][t]}];
      group.members.emplace_back(r, t);
      group.stack_of.push_back(stacks.add(job.ranks[r].threads[t]));
    }

  std::vector<Cluster> clusters;
  std::vector<RankKind> kinds;
  constexpr std::uint32_t kNowhere = UINT32_MAX;
  std::vector<std::uint32_t> ends_at(stacks.size(), kNowhere);  // the node of the group's tree, by number of the stack
  for (const auto& [key, group] : groups) {
    StackTree tree;
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      std::uint32_t& end = ends_at[group.stack_of[m]];
      if (end == kNowhere) end = tree.insert(stacks[group.stack_of[m]], m);
      else tree.add(end, m);
    }
    for (const std::size_t stack : group.stack_of) ends_at[stack] = kNowhere;
    std::vector<std::vector<std::size_t>> classes;
    for (std::uint32_t n = 0; n < tree.size(); ++n)
      if (!tree.node(n).ending.empty()) classes.push_back(tree.node(n).ending);
    join_partial_classes(job, group, stacks, classes);

    std::vector<Cluster> of_group;
    for (const std::vector<std::size_t>& one : classes) of_group.push_back(cluster_of(job, group, key.second, one));
    if (key.first == RankKind::kRank) mark_odd(of_group, stage_of);
    for (Cluster& cluster : of_group) {
      clusters.push_back(std::move(cluster));
      kinds.push_back(key.first);
    }
  }

  std::vector<std::size_t> order(clusters.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Cluster &x = clusters[a], &y = clusters[b];
    if (x.odd != y.odd) return x.odd;
    if (x.role != y.role) return x.role < y.role;
    if (kinds[a] != kinds[b]) return kinds[a] == RankKind::kRank;
    if (x.ranks.size() != y.ranks.size()) return x.ranks.size() > y.ranks.size();
    if (x.members.size() != y.members.size()) return x.members.size() > y.members.size();
    return x.members.front() < y.members.front();
  });
  std::vector<Cluster> sorted;
  sorted.reserve(clusters.size());
  for (const std::size_t i : order) {
    sorted.push_back(std::move(clusters[i]));
    sorted.back().id = static_cast<int>(sorted.size()) - 1;
  }
  return sorted;
}

}  // namespace rankstacks::analyzers
