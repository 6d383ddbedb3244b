// Asks nodes through an engine, and says of each what it has answered, or why it has not.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "model/node.h"
#include "nodes/answer_lines.h"
#include "nodes/engine_call.h"
#include "nodes/fan_out.h"
#include "nodes/node_script.h"
#include "nodes/topology.h"

namespace rankstacks::nodes {

struct NodeQuestion {
  EngineSettings engine;
  std::vector<std::string> hosts;
  std::vector<std::string> words;  // the tool's arguments on each node
  bool copies = true;              // the tool takes itself along where a node has none
  // All nodes begin so long after they are asked; 0: each begins when it is ready.
  std::chrono::milliseconds start_in{0};
  // When those begin that need no copy, instead: for a gateway, which is asked for the nodes behind it.
  std::optional<std::chrono::system_clock::time_point> start_at;
  // The nodes behind gateways are asked by these, which merge the answers: by `rankstacks job` with `gateway_words`.
  Tree tree;
  std::vector<std::string> gateway_words;
};

struct NodeAnswer {
  NodeSnapshot node;
  // It is a gateway, and `answer` is that of the nodes behind it.
  bool is_gateway = false;
  std::string gateway;  // whose answer is this node's as well; "": it has its own
  // Empty: the node has a fault. Packed: the reports of 3,000 nodes take some 30 GB as text.
  std::optional<Answer> answer;
};
// Whether anything has come from the node itself.
inline bool has_spoken(const NodeAnswer& answer) { return answer.node.clock_offset_ms.has_value(); }
// Unpacks the answer. std::nullopt: there is none, or it is damaged, which becomes the node's fault.
std::optional<NodeReply> take_reply(NodeAnswer& answer);

// This program's own file. kUnreadable: it cannot be read.
Result<ToolFile> own_file();

// The calls of the first round, and of the round that copies the tool, if all nodes needed that. For --print.
struct PlannedCalls {
  std::vector<std::vector<std::string>> first, copying;
};
PlannedCalls plan_calls(const NodeQuestion& question, const ToolFile& tool);

// One answer for each host, in their order; nodes that answered and are none of the hosts come last. First every node
// is asked; those that lack the tool are asked again, with it. If an engine that asks all nodes by one call has had no
// answer at all, each node is asked by a call of its own: some engines give up everything for one dead node. Nodes
// whose gateway has not answered are asked through another one of their branch; if none has, by ssh, without any.
std::vector<NodeAnswer> ask_nodes(const NodeQuestion& question, const ToolFile& tool, const Deadline& deadline,
                                  const Interrupts& interrupts);

}  // namespace rankstacks::nodes
