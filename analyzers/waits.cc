#include "analyzers/waits.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "model/rank_set.h"

namespace rankstacks {
namespace {

enum class Kind { kCollective, kPointToPoint, kStore, kPeer };

Kind kind_of(const Standing& s) {
  if (s.doing.activity == Activity::kPointToPoint) return Kind::kPointToPoint;
  if (s.doing.activity == Activity::kPeerWait) return Kind::kPeer;
  return s.doing.activity == Activity::kStoreWait ? Kind::kStore : Kind::kCollective;
}

bool same_group(const Standing& a, const Standing& b) { return !a.group || !b.group || *a.group == *b.group; }

// Which collective it is, as far as known: where it is one that many share, the place has to tell.
bool same_operation(const Standing& a, const Standing& b, const std::string& place_a, const std::string& place_b) {
  if (a.told_by_gpu && b.told_by_gpu) return may_be_same_collective(a.gpu, b.gpu);
  if (a.doing.operation.generic || b.doing.operation.generic || a.gpu_wait_may_be_collective || b.gpu_wait_may_be_collective) return place_a == place_b;
  return same_call(a.doing.operation, b.doing.operation);
}

}  // namespace

Waits::Waits(const JobSnapshot& job, const std::vector<Standing>& standings) : needed_(standings.size(), false) {
  struct Key {
    int kind;
    std::string place, group;
    int peer;
    std::size_t own;   // a rank whose peer is known stands for itself
    auto operator<=>(const Key&) const = default;
  };
  std::map<int, std::size_t> by_number;
  std::unordered_map<std::size_t, std::size_t> by_process;
  std::map<Key, std::size_t> index;
  std::vector<std::size_t> class_of(standings.size(), SIZE_MAX), others;
  std::vector<std::string> places;
  for (std::size_t i = 0; i < standings.size(); ++i) {
    const Standing& s = standings[i];
    if (s.stranger) continue;
    by_process.emplace(s.rank, i);
    if (const auto number = job.ranks[s.rank].rank; number && (s.readable || s.ended)) by_number.emplace(*number, i);
    if (!s.readable) continue;
    if (!s.waits()) {
      others.push_back(i);
      continue;
    }
    Key key{static_cast<int>(kind_of(s)), place_key(job, s), s.group ? s.group->name + '|' + format_numbers(s.group->ranks, SIZE_MAX) : "", s.peer.value_or(-1),
            s.peer || s.peer_process ? i : SIZE_MAX};
    const auto [it, is_new] = index.emplace(key, classes_.size());
    if (is_new) {
      classes_.emplace_back();
      places.push_back(key.place);
    }
    class_of[i] = it->second;
    classes_[it->second].members.push_back(i);
  }

  for (std::size_t c = 0; c < classes_.size(); ++c) {
    WaitClass& waiting = classes_[c];
    const Standing& s = standings[waiting.members.front()];
    const Kind kind = kind_of(s);
    const auto need = [&](std::size_t i) {
      if (standings[i].ended) return;
      if (class_of[i] == SIZE_MAX) waiting.elsewhere.push_back(i);
      else if (class_of[i] != c) waiting.classes.push_back(class_of[i]);
    };
    const auto has_arrived = [&](std::size_t other) {
      const Standing& o = standings[classes_[other].members.front()];
      if (kind == Kind::kPointToPoint) {
        const Operation &own = s.doing.operation, &opposite_call = o.doing.operation;
        const bool opposite = kind_of(o) == Kind::kPointToPoint && ((own.sends && opposite_call.receives) || (own.receives && opposite_call.sends));
        const auto own_number = job.ranks[s.rank].rank;
        return opposite && (!o.peer || !own_number || *o.peer == *own_number);
      }
      return kind_of(o) == kind && same_group(s, o) && same_operation(s, o, places[c], places[other]);
    };
    const auto need_unless_arrived = [&](std::size_t i) {
      if (class_of[i] == SIZE_MAX || (class_of[i] != c && !has_arrived(class_of[i]))) need(i);
    };
    std::vector<int> named;   // whom it needs, where that is known
    if (kind == Kind::kPointToPoint && s.peer) named = {*s.peer};
    else if (kind == Kind::kCollective && s.group) named = s.group->ranks;
    waiting.certain = !named.empty() || s.peer_process;
    if (s.peer_process) {
      if (const auto it = by_process.find(*s.peer_process); it != by_process.end()) need(it->second);
    }
    for (const int number : named) {
      const auto it = by_number.find(number);
      if (it == by_number.end()) waiting.unseen.push_back(number);
      else need_unless_arrived(it->second);
    }
    if (waiting.certain) {
      std::sort(waiting.classes.begin(), waiting.classes.end());
      waiting.classes.erase(std::unique(waiting.classes.begin(), waiting.classes.end()), waiting.classes.end());
      continue;
    }
    waiting.elsewhere = others;
    for (std::size_t other = 0; other < classes_.size(); ++other)
      if (other != c && !has_arrived(other)) waiting.classes.push_back(other);
  }
  for (const WaitClass& c : classes_) {
    for (const std::size_t i : c.elsewhere) needed_[i] = true;
    for (const std::size_t other : c.classes)
      for (const std::size_t i : classes_[other].members) needed_[i] = true;
  }
  find_cycles();
}

// Tarjan's strongly connected components, without recursion: a job of lone senders and receivers is one long chain.
void Waits::find_cycles() {
  constexpr std::size_t kUnseen = SIZE_MAX;
  const std::size_t n = classes_.size();
  std::vector<std::size_t> order(n, kUnseen), low(n, 0), next(n, 0), stack, path;
  std::vector<bool> on_stack(n, false);
  std::size_t count = 0;
  for (std::size_t root = 0; root < n; ++root) {
    if (order[root] != kUnseen) continue;
    path.push_back(root);
    while (!path.empty()) {
      const std::size_t v = path.back();
      if (order[v] == kUnseen) {
        order[v] = low[v] = count++;
        stack.push_back(v);
        on_stack[v] = true;
      }
      if (next[v] < classes_[v].classes.size()) {
        const std::size_t w = classes_[v].classes[next[v]++];
        if (order[w] == kUnseen) path.push_back(w);
        else if (on_stack[w]) low[v] = std::min(low[v], order[w]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[v]);
      if (low[v] != order[v]) continue;
      const bool alone = stack.back() == v;
      for (std::size_t w = kUnseen; w != v;) {
        w = stack.back();
        stack.pop_back();
        on_stack[w] = false;
        classes_[w].in_cycle = !alone;
      }
    }
  }
}

std::string describe_wait(const Standing& standing, std::size_t ranks_in_all) {
  const Operation& operation = standing.doing.operation;
  if (operation.is_none()) return standing.gpu_wait_may_be_collective ? "for the GPU" : "for the other ranks";
  std::string text = "in " + operation.name;
  if (standing.named_by_gpu) text += " on the GPU";
  if (standing.peer) text += fmt::format(" {} rank {}", operation.sends ? "to" : "from", *standing.peer);
  if (!standing.group) return text;
  const bool some_ranks = !standing.group->ranks.empty() && standing.group->ranks.size() < ranks_in_all;
  if (standing.group->name != kDefaultGroup || some_ranks) text += fmt::format(" of group {}", standing.group->name);
  if (some_ranks) text += fmt::format(" (ranks {})", format_numbers(standing.group->ranks));
  return text;
}

}  // namespace rankstacks
