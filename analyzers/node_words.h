// Nodes that have not answered, in groups of one kind of refusal, and the sentences about them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// "no route to host"
std::string_view phrase_of(NodeFault fault);

struct NodeGroup {
  const NodeSnapshot* first = nullptr;  // of the snapshot: the first with that fault
  std::vector<std::size_t> nodes;       // indices into JobSnapshot::nodes
  std::vector<int> ranks;               // of all of them, as far as they are known
};

// Nodes with a fault, by fault, engine and hint, in the order of the first of each group. Nodes without ranks of the
// job, and those that refuse or have ended, are a group only if ranks are missing.
std::vector<NodeGroup> node_groups(const JobSnapshot& job);

// "node-17 (ranks 136-143): ssh: no route to host (connect to host 10.0.0.17 port 22: No route to host)"; of several:
// "3 nodes, node-[17-19] (ranks 136-159): ...".
std::string describe_nodes(const JobSnapshot& job, const NodeGroup& group);

}  // namespace rankstacks::analyzers
