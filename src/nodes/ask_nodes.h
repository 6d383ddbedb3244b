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

namespace rankstacks::nodes {

struct NodeQuestion {
  EngineSettings engine;
  std::vector<std::string> hosts;
  std::vector<std::string> words;  // the tool's arguments on each node
  bool copies = true;              // the tool takes itself along where a node has none
  // All nodes begin so long after they are asked; 0: each begins when it is ready.
  std::chrono::milliseconds start_in{0};
};

struct NodeAnswer {
  NodeSnapshot node;
  // Empty: the node has a fault. Packed: the reports of 3,000 nodes take some 30 GB as text.
  std::optional<Answer> answer;
};
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
// answer at all, each node is asked by a call of its own: some engines give up everything for one dead node.
std::vector<NodeAnswer> ask_nodes(const NodeQuestion& question, const ToolFile& tool, const Deadline& deadline,
                                  const Interrupts& interrupts);

}  // namespace rankstacks::nodes
