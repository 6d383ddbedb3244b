#include "analyzers/tree.h"

#include <algorithm>

namespace rankstacks::analyzers {

std::uint32_t StackTree::insert(const std::vector<StackItem>& stack, std::size_t member) {
  std::uint32_t at = kRoot;
  for (std::size_t i = stack.size(); i-- > 0;) {
    const std::uint64_t key = (std::uint64_t{at} << 32) | stack[i].norm;
    const auto [it, is_new] = child_.try_emplace(key, static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) {
      Node node;
      node.norm = stack[i].norm;
      node.parent = at;
      node.depth = nodes_[at].depth + 1;
      nodes_[at].children.push_back(it->second);
      nodes_.push_back(std::move(node));
    }
    at = it->second;
  }
  nodes_[at].ending.push_back(member);
  return at;
}

std::vector<std::size_t> StackTree::members_below(std::uint32_t index) const {
  std::vector<std::size_t> found;
  std::vector<std::uint32_t> todo = {index};
  while (!todo.empty()) {
    const Node& node = nodes_[todo.back()];
    todo.pop_back();
    found.insert(found.end(), node.ending.begin(), node.ending.end());
    todo.insert(todo.end(), node.children.begin(), node.children.end());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace rankstacks::analyzers
