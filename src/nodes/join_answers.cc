#include "nodes/join_answers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "nodes/answer_book.h"
#include "report/report.h"

namespace rankstacks::nodes {
namespace {

constexpr int kMaxWorld = 1 << 20;
constexpr int kNoBlock = -1;

// Nodes that run none of the job's ranks are no part of its numbering.
bool may_have_ranks(const NodeSnapshot& node) {
  return node.fault != NodeFault::kNone && node.fault != NodeFault::kNoRanks;
}

// Also without those that have not permitted a look.
bool has_ranks_if_any(const NodeSnapshot& node) {
  return may_have_ranks(node) && node.fault != NodeFault::kNotPermitted;
}

// The block of each node that has answered; empty if some node's ranks are not in one block.
std::vector<int> blocks_of(const std::vector<std::vector<int>>& seen, int block) {
  std::vector<int> blocks;
  for (const std::vector<int>& ranks : seen) {
    int of_node = kNoBlock;
    for (const int rank : ranks) {
      if (of_node != kNoBlock && rank / block != of_node) return {};
      of_node = rank / block;
    }
    blocks.push_back(of_node);
  }
  return blocks;
}

struct Layout {
  std::vector<NodeSnapshot>& nodes;
  int world, block;

  void give(std::size_t node, int number) {
    for (int rank = number * block; rank < std::min((number + 1) * block, world); ++rank)
      nodes[node].ranks.push_back(rank);
  }

  // The silent nodes between two that have answered, if exactly their blocks are left between those two.
  void give_run(const std::vector<std::size_t>& silent, int before, int after) {
    if (static_cast<int>(silent.size()) != after - before - 1) return;
    for (std::size_t i = 0; i < silent.size(); ++i) give(silent[i], before + 1 + static_cast<int>(i));
  }
};

// What the ranks of the nodes that have answered say of how all are numbered.
struct Numbering {
  std::vector<std::vector<int>> seen;  // of each node
  int world = 0, block = 0;            // the ranks of the job; the most of one node
  bool one_world = true;

  // Returns the numbers of these ranks.
  std::vector<int> look_at(const std::vector<RankSnapshot>& ranks) {
    std::vector<int> numbers;
    for (const RankSnapshot& rank : ranks) {
      if (rank.kind != RankKind::kRank || !rank.rank || !rank.world_size) continue;
      one_world = one_world && (world == 0 || world == *rank.world_size) && *rank.rank < *rank.world_size;
      world = *rank.world_size;
      block = std::max(block, std::min(rank.local_world_size.value_or(0), world));
      numbers.push_back(*rank.rank);
    }
    return numbers;
  }
  // `numbers`: of the ranks that it has shown; a gateway's word may be wrong.
  void add_node(std::vector<int> numbers) {
    std::erase_if(numbers, [this](int number) { return number < 0 || number >= world; });
    block = std::max(block, static_cast<int>(std::set<int>(numbers.begin(), numbers.end()).size()));
    seen.push_back(std::move(numbers));
  }
};

// Fewer bytes than a report has are no reason to believe that it is one: read_json_report bounds all of it.
void read_reply(const NodeReply& reply, NodeSnapshot& node, JobSnapshot& into) {
  const auto blame = [&](NodeFault fault) {
    node.fault = fault;
    const std::string_view said = reply.said;
    const std::string_view line = said.substr(0, std::min<std::size_t>(said.find('\n'), 512));
    node.said = line.starts_with("rankstacks: ") ? line.substr(12) : line;
    const std::size_t hint = said.find("\nhint: ");
    if (hint == std::string_view::npos) return;
    const std::string_view rest = said.substr(hint + 7);
    node.hint = rest.substr(0, std::min<std::size_t>(rest.find('\n'), 512));
  };
  if (reply.report.empty())
    return blame(reply.exit_status == kStatusNoRanks       ? NodeFault::kNoRanks
                 : reply.exit_status == kStatusHidden      ? NodeFault::kNotPermitted
                 : reply.exit_status == kStatusSeveralJobs ? NodeFault::kSeveralJobs
                                                           : NodeFault::kTool);
  auto job = report::read_json_report(reply.report, node.name);
  if (!job) {
    node.fault = NodeFault::kMalformed;
    node.said = job.error().what.substr(0, 512);
    return;
  }
  into = std::move(*job);
}

// A gateway can say something of the nodes alone that it was asked for.
using GatewayAndNode = std::pair<std::string, std::string>;

JobSnapshot read_answer(NodeAnswer& answer) {
  JobSnapshot job;
  if (const std::optional<NodeReply> reply = take_reply(answer)) read_reply(*reply, answer.node, job);
  return job;
}

// A gateway says how far the clock of `node` is from its own.
void place_clock(const NodeSnapshot& gateway, NodeSnapshot& node) {
  if (!gateway.clock_offset_ms || !gateway.clock_error_ms || !node.clock_offset_ms || !node.clock_error_ms) {
    node.clock_offset_ms = node.clock_error_ms = node.late_ms = std::nullopt;
    return;
  }
  if (std::abs(*gateway.clock_offset_ms) > *gateway.clock_error_ms + kToleratedClockMs) node.late_ms.reset();
  *node.clock_offset_ms += *gateway.clock_offset_ms;
  *node.clock_error_ms += *gateway.clock_error_ms;
}

// What the gateways say of it; its `ranks` are those that it has shown. `damaged`: what is wrong with their answers.
NodeSnapshot node_behind(NodeAnswer& answer, std::map<GatewayAndNode, NodeSnapshot>& behind_gateways,
                         const std::map<std::string, std::string, std::less<>>& damaged) {
  if (const auto it = behind_gateways.find({answer.gateway, answer.node.name}); it != behind_gateways.end()) {
    NodeSnapshot node = std::move(it->second);
    node.name = answer.node.name;
    if (node.fault != NodeFault::kNone) node.ranks.clear();
    for (std::string* text : {&node.said, &node.hint, &node.engine})
      text->resize(std::min(text->size(), AnswerBook::kMaxSaid));
    return node;
  }
  answer.node.fault = NodeFault::kMalformed;
  const auto why = damaged.find(answer.gateway);
  answer.node.said =
      "its gateway " + answer.gateway + (why == damaged.end() ? " says nothing of it" : ": " + why->second);
  return std::move(answer.node);
}

// The names, keys and programs that a gateway knows may be others than those of this machine. Nodes that it
// finds dead or slow are so from here as well.
bool may_be_its_gateways(NodeFault fault) {
  return fault == NodeFault::kUnknownHost || fault == NodeFault::kHostKey || fault == NodeFault::kLogin ||
         fault == NodeFault::kNoEngine || fault == NodeFault::kOther || fault == NodeFault::kMalformed;
}

// What a node that was asked directly has said to the end counts; else what its gateway says.
bool says_more_than_its_gateway(const NodeAnswer& direct) {
  const NodeFault fault = direct.node.fault;
  return has_spoken(direct) && !may_be_dead(fault) && fault != NodeFault::kInterrupted &&
         fault != NodeFault::kConnectionLost;
}

// Replaces the answers of nodes that a gateway has not reached.
void ask_past_gateways(std::vector<NodeAnswer>& answers, const std::map<GatewayAndNode, NodeSnapshot>& behind_gateways,
                       const AskDirectly& ask_directly) {
  std::map<std::string, std::size_t, std::less<>> places;
  std::vector<std::string> hosts;
  for (std::size_t place = 0; place < answers.size(); ++place) {
    const NodeAnswer& answer = answers[place];
    if (answer.is_gateway || answer.gateway.empty()) continue;
    const auto it = behind_gateways.find({answer.gateway, answer.node.name});
    if (it != behind_gateways.end() && !may_be_its_gateways(it->second.fault)) continue;
    if (places.try_emplace(answer.node.name, place).second) hosts.push_back(answer.node.name);
  }
  if (hosts.empty()) return;
  for (NodeAnswer& direct : ask_directly(hosts)) {
    const auto it = places.find(direct.node.name);
    if (it != places.end() && says_more_than_its_gateway(direct)) answers[it->second] = std::move(direct);
  }
}

void assign_to(bool (*is_silent)(const NodeSnapshot&), std::vector<NodeSnapshot>& nodes,
               const std::vector<std::vector<int>>& seen, int world, int block) {
  const std::vector<int> blocks = blocks_of(seen, block);
  if (blocks.empty()) return;
  const int all = (world + block - 1) / block;
  Layout layout{nodes, world, block};
  std::set<int> left;
  for (int number = 0; number < all; ++number) left.insert(number);
  std::vector<std::size_t> silent;
  std::vector<int> in_order;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (is_silent(nodes[i])) silent.push_back(i);
    else if (blocks[i] != kNoBlock) in_order.push_back(blocks[i]), left.erase(blocks[i]);
  }
  if (silent.size() == 1 && left.size() == 1) return layout.give(silent.front(), *left.begin());
  if (in_order.empty() ||
      std::adjacent_find(in_order.begin(), in_order.end(), std::greater_equal<>()) != in_order.end())
    return;
  int before = -1;
  std::vector<std::size_t> run;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (is_silent(nodes[i])) run.push_back(i);
    else if (blocks[i] != kNoBlock) {
      layout.give_run(run, before, blocks[i]);
      run.clear();
      before = blocks[i];
    }
  }
  layout.give_run(run, before, all);
}

}  // namespace

void assign_silent_ranks(std::vector<NodeSnapshot>& nodes, const std::vector<std::vector<int>>& seen, int world,
                         int block) {
  if (world <= 0 || world > kMaxWorld || block <= 0 || block > world) return;
  for (const auto is_silent : {may_have_ranks, has_ranks_if_any}) {
    assign_to(is_silent, nodes, seen, world, block);
    if (std::any_of(nodes.begin(), nodes.end(), [](const NodeSnapshot& node) { return !node.ranks.empty(); })) return;
  }
}

JobSnapshot join_answers(std::vector<NodeAnswer> answers, bool for_gateway, const AskDirectly& ask_directly) {
  report::JobMerger merger;
  Numbering numbering;
  // Those behind a gateway first: what it says of each is in its answer, the ranks that the node has shown included.
  std::map<GatewayAndNode, NodeSnapshot> behind_gateways;
  std::map<std::string, std::string, std::less<>> damaged;
  for (NodeAnswer& answer : answers) {
    if (!answer.is_gateway) continue;
    JobSnapshot job = read_answer(answer);
    for (NodeSnapshot& node : job.nodes) {
      place_clock(answer.node, node);
      GatewayAndNode key{answer.node.name, node.name};
      behind_gateways.try_emplace(std::move(key), std::move(node));
    }
    if (answer.node.fault != NodeFault::kNone) damaged.try_emplace(answer.node.name, answer.node.said);
    numbering.look_at(job.ranks);
    if (!job.ranks.empty()) merger.add(std::move(job));
  }
  if (ask_directly) ask_past_gateways(answers, behind_gateways, ask_directly);
  std::vector<NodeSnapshot> nodes;
  for (NodeAnswer& answer : answers) {
    if (answer.is_gateway) continue;
    if (!answer.gateway.empty()) {
      nodes.push_back(node_behind(answer, behind_gateways, damaged));
      numbering.add_node(std::exchange(nodes.back().ranks, {}));
      continue;
    }
    JobSnapshot job = read_answer(answer);
    nodes.push_back(std::move(answer.node));
    numbering.add_node(numbering.look_at(job.ranks));
    if (!job.ranks.empty()) merger.add(std::move(job));
  }
  if (for_gateway) {
    for (std::size_t n = 0; n < nodes.size(); ++n) nodes[n].ranks = std::move(numbering.seen[n]);
  } else if (numbering.one_world) {
    assign_silent_ranks(nodes, numbering.seen, numbering.world, numbering.block);
  }
  JobSnapshot job = merger.take();
  job.nodes = std::move(nodes);
  return job;
}

}  // namespace rankstacks::nodes
