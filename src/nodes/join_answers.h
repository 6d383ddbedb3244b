// The answers of nodes as one job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "nodes/ask_nodes.h"

namespace rankstacks::nodes {

// Exit statuses of the tool on a node (--for-node), in place of 2: why nothing could be done there.
// kStatusHidden: no rank was found, and there are processes whose environment this user may not read.
inline constexpr int kStatusNoRanks = 80, kStatusSeveralJobs = 81, kStatusHidden = 82;

// Asks nodes without a gateway (ask_directly.h); one that has no answer was not asked.
using AskDirectly = std::function<std::vector<NodeAnswer>(const std::vector<std::string>& hosts)>;

// Reads the nodes' reports and merges them. A report that cannot be read is that node's fault. The job's `nodes` are
// those that were asked, in their order, and silent ones have the ranks that they must have. `for_gateway`: this is a
// gateway, and whoever has asked it knows more nodes: instead those that have answered have the ranks that they have
// shown. `ask_directly`, if there is one, asks the nodes that a gateway has not reached for a fault that may be its
// own; where a node does not answer that either, what its gateway says of it stays.
JobSnapshot join_answers(std::vector<NodeAnswer> answers, bool for_gateway = false,
                         const AskDirectly& ask_directly = nullptr);

// Gives silent nodes their ranks: launchers number the ranks node by node, in blocks of one size, in the order of the
// host list. `seen`: of each node the ranks that it has shown. A node gets none if the others do not show which they
// are: the blocks are not in the list's order, or too many or too few are left for the nodes between two others. Nodes
// that have not permitted a look may run none: if no node gets any, it is tried again without them.
void assign_silent_ranks(std::vector<NodeSnapshot>& nodes, const std::vector<std::vector<int>>& seen, int world,
                         int block);

}  // namespace rankstacks::nodes
