#include "analyzers/node_words.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/text.h"
#include "model/host_set.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// Whether every rank that the world size states was seen.
bool all_seen(const JobSnapshot& job) {
  std::set<int> seen;
  int world = 0;
  for (const RankSnapshot& rank : job.ranks) {
    if (rank.kind != RankKind::kRank) continue;
    if (rank.rank) seen.insert(*rank.rank);
    world = std::max(world, rank.world_size.value_or(0));
  }
  return world > 0 && seen.size() >= static_cast<std::size_t>(world);
}

// Whether a node with that fault need not run a rank: a launcher's pod, one that has ended, another user's node.
bool may_lack_ranks(NodeFault fault) {
  return fault == NodeFault::kNoRanks || fault == NodeFault::kNoTarget || fault == NodeFault::kNotPermitted;
}

}  // namespace

std::string_view phrase_of(NodeFault fault) {
  switch (fault) {
    case NodeFault::kNone: return "has answered";
    case NodeFault::kOther: return "no answer";
    case NodeFault::kUnknownHost: return "no host of that name is known";
    case NodeFault::kNoRoute: return "no route to host";
    case NodeFault::kConnectTimeout: return "does not answer an attempt to connect";
    case NodeFault::kRefused: return "connection refused";
    case NodeFault::kConnectionLost: return "the connection was lost";
    case NodeFault::kHostKey: return "its host key is not the known one";
    case NodeFault::kLogin: return "login denied";
    case NodeFault::kNotPermitted: return "not permitted";
    case NodeFault::kNoTarget: return "no such job, step, pod or container";
    case NodeFault::kNodeDown: return "the node is down or drained, or the container does not run";
    case NodeFault::kBusy: return "no room for a step there";
    case NodeFault::kNoEngine: return "does not work on this machine";
    case NodeFault::kTimeout: return "no answer in time";
    case NodeFault::kInterrupted: return "not waited for any longer";
    case NodeFault::kCannotRun: return "the tool does not start there";
    case NodeFault::kCannotCopy: return "the tool is not there and could not be copied";
    case NodeFault::kMalformed: return "its answer is damaged";
    case NodeFault::kNoRanks: return "no rank of the job runs there";
    case NodeFault::kSeveralJobs: return "several jobs run there, and none was chosen";
    case NodeFault::kTool: return "the tool has failed there";
  }
  return "";
}

std::vector<NodeGroup> node_groups(const JobSnapshot& job) {
  std::vector<NodeGroup> groups;
  std::map<std::tuple<NodeFault, std::string, std::string>, std::size_t> known;
  const bool complete = all_seen(job);
  for (std::size_t n = 0; n < job.nodes.size(); ++n) {
    const NodeSnapshot& node = job.nodes[n];
    if (node.fault == NodeFault::kNone || (complete && may_lack_ranks(node.fault))) continue;
    const auto [it, is_new] = known.try_emplace({node.fault, node.engine, node.hint}, groups.size());
    if (is_new) groups.push_back({&node, {}, {}});
    NodeGroup& group = groups[it->second];
    group.nodes.push_back(n);
    group.ranks.insert(group.ranks.end(), node.ranks.begin(), node.ranks.end());
  }
  return groups;
}

std::string describe_nodes(const JobSnapshot& job, const NodeGroup& group) {
  std::vector<std::string> names;
  for (const std::size_t n : group.nodes) names.push_back(job.nodes[n].name);
  std::string text =
      names.size() == 1 ? names.front() : fmt::format("{} nodes, {}", names.size(), format_host_set(names));
  if (!group.ranks.empty())
    text += fmt::format(" (rank{} {})", plural(group.ranks.size()), format_numbers(group.ranks));
  text += fmt::format(": {}: {}", group.first->engine, phrase_of(group.first->fault));
  if (!group.first->said.empty())
    text += names.size() == 1 ? fmt::format(" ({})", group.first->said)
                              : fmt::format(" ({}: {})", names.front(), group.first->said);
  return text;
}

}  // namespace rankstacks::analyzers
