// The graph of waits with nodes that are alike merged into one, so that the graph of a job of 1,024 ranks has a few
// nodes:
//
//     ranks 0-1,3-1023 in all_reduce ──frame──> all_reduce of group 0 ──group──> rank 2 in __getitem__ ──> a pipe
//
// Nodes are alike if they have the same kind and text, are the same kind of thread, and wait for nodes that are alike,
// by the same evidence. A suspect's node stays by itself.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "analyzers/analysis.h"
#include "model/snapshot.h"

namespace rankstacks::report {

struct WaitGroup {
  analyzers::NodeKind kind = analyzers::NodeKind::kThread;
  std::string label;               // "ranks 0-1,3 in all_reduce (step at train.py:17)"; sanitized
  std::vector<std::size_t> ranks;  // indices into JobSnapshot::ranks, ascending, unique
  std::vector<std::pair<std::size_t, std::size_t>> threads;  // (rank index, thread index)
  bool suspect = false;
  bool in_chain = false;  // some chain of the verdict passes it
};

struct WaitGroupEdge {
  std::size_t from = 0, to = 0;  // indices of groups
  analyzers::WaitEvidence evidence = analyzers::WaitEvidence::kFrame;
  analyzers::Certainty certainty = analyzers::Certainty::kLikely;
  bool in_chain = false;
};

struct WaitGroups {
  std::vector<WaitGroup> groups;
  std::vector<WaitGroupEdge> edges;
  std::size_t left_out = 0;                            // groups that are not shown
  std::vector<std::vector<std::size_t>> chain_groups;  // by chain of the verdict: the group of each of its links
};

// Only nodes with an edge. At most `most` groups: those of the chains first, then those with most nodes.
WaitGroups group_waits(const JobSnapshot& job, const analyzers::Analysis& analysis, std::size_t most);

}  // namespace rankstacks::report
