// The tree by which nodes are reached, as ClusterShell's topology.conf has it (clush(1), "Tree mode"; 1.9.1,
// Topology.py).
//
//     [routes]
//     login: gw[1-2]
//     gw[1-2]: node[1-64]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rankstacks::nodes {

// `from` reach `to` directly. A host that several routes lead to is reached by those of the first one.
struct Route {
  std::vector<std::string> from, to;
};

// Nodes that are reached through the same gateways, each of which reaches all of them.
struct Branch {
  std::vector<std::string> gateways;
  std::vector<std::string> behind;  // in the order in which they were asked for
};

struct Tree {
  std::vector<Branch> branches;  // those that have a node behind them
  std::size_t levels = 0;        // the most gateways on the way to a node
};

// kUnsupported: a list has groups or other operations of node sets, which only ClusterShell can resolve; kMalformed:
// it has no section of routes, or they are none.
Result<std::vector<Route>> parse_topology(std::string_view text, const std::string& subject);

// Where the file may be, the one that counts last (ClusterShell Defaults.py, config_paths()): the system's, the user's,
// that of $CLUSTERSHELL_CFGDIR. `options`: the user's of clush; "--topology=FILE" or "--topology FILE" is the only one.
std::vector<std::string> topology_files(const std::vector<std::string>& options);

// The options without that one: for a gateway, which has a file of its own, or none.
std::vector<std::string> without_topology(const std::vector<std::string>& options);

// What lies between the host `own` (its name until the first dot) and `hosts`; those that are in no branch are reached
// directly.
Tree tree_from(const std::string& own, const std::vector<Route>& routes, const std::vector<std::string>& hosts);

}  // namespace rankstacks::nodes
