// Nodes that gateways have not reached, asked once more by ssh, without any gateway.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "nodes/ask_nodes.h"

namespace rankstacks::nodes {

// `question`: of those nodes, by ssh. `first_start`: when the job's other nodes were to begin; how late these are is
// counted from then. Most often there is a gateway since this machine has no way to the nodes: if of the first ones, as
// many as are asked at a time, none says a word, the others are not asked. They have no answer then, nor do they if
// there is no time left.
std::vector<NodeAnswer> ask_directly(NodeQuestion question,
                                     std::optional<std::chrono::system_clock::time_point> first_start,
                                     const ToolFile& tool, const Deadline& deadline, const Interrupts& interrupts);

}  // namespace rankstacks::nodes
