// Stacks of many threads as one prefix tree, root = outermost frame:
//
//     <module>:19 ── main:15 ── __next__ ── __getitem__ ── read        {2}
//                 └─ main:17 ── backward ── finalize_backward          {0,1,3}
//
// A node holds the members whose stack ends there and, through its children, the ranks of all stacks that pass it.
// Members with equal stacks end at one node: the nodes where members end are the classes.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "analyzers/normalize.h"

namespace rankstacks::analyzers {

class StackTree {
 public:
  static constexpr std::uint32_t kRoot = 0;

  struct Node {
    NormId norm = 0;
    std::uint32_t parent = kRoot;
    std::uint32_t depth = 0;              // 0 for the root, which represents no frame
    std::vector<std::uint32_t> children;  // in the order of first insertion
    std::vector<std::size_t> ending;      // members whose stack ends here
  };

  StackTree() : nodes_(1) {}

  // `stack` is ordered innermost first, as in threads. Returns the node where the member ends.
  std::uint32_t insert(const std::vector<StackItem>& stack, std::size_t member);

  // Another member whose stack ends at this node.
  void add(std::uint32_t node, std::size_t member) { nodes_[node].ending.push_back(member); }

  const Node& node(std::uint32_t index) const { return nodes_[index]; }
  std::size_t size() const { return nodes_.size(); }
  // All members that end at or below a node, ascending.
  std::vector<std::size_t> members_below(std::uint32_t index) const;

 private:
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::uint32_t> child_;  // (parent, norm) -> node
};

}  // namespace rankstacks::analyzers
