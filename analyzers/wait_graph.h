// Which thread waits for what, as one graph. It is the evidence for a verdict, link by link.
//
//     thread 4711 (rank 0) ──frame──> operation: all_reduce of group 0 ──group──> thread 4801 (rank 1)
//                                                                                    │ memory
//     timer <──system call── thread 4855 (rank 1), "reporter" <──memory── native lock <┘
//
// A node is a thread, or something that a thread can wait for. An edge means *waits for*; it has the kind of evidence
// and its certainty. A wait ends at a node without an outgoing edge. Suspects are the *sinks*: ranks that some other
// rank's wait leads to and that wait for no other rank themselves. A rank that waits is not accused, unless it is
// part of a cycle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

struct PendingOperation;  // pending_operations.h
struct RankState;         // rank_state.h

enum class NodeKind : std::uint8_t {
  kThread,
  kProcess,      // as a whole: one that has ended, a child whose threads are not known
  kOperation,    // a collective, a message, a wait in the store: of all ranks that wait in it alike
  kRanks,        // several ranks, each of which is needed
  kMissingRank,  // a rank that is needed, and was not captured or does not exist
  kLock,
  kKernel,      // on a GPU of the rank's
  kDescriptor,  // a file, pipe or socket
  kTimer,
};
std::string_view to_string(NodeKind kind);  // "thread"

enum class WaitEvidence : std::uint8_t {
  kFrame,       // a frame that a table of rules names (activity_rules)
  kSystemCall,  // the system call and its descriptor
  kMemory,      // a lock's owner, the holder of the GIL
  kGroup,       // the members of a process group, or the other end of a message
  kKernel,      // what runs on the GPU
  kProcess,     // parent and child
  kOthers,      // what the other ranks or threads do
};
std::string_view to_string(WaitEvidence evidence);  // "system-call"

enum class Certainty : std::uint8_t { kPossible, kLikely, kCertain };
std::string_view to_string(Certainty certainty);

struct WaitNode {
  NodeKind kind = NodeKind::kThread;
  std::optional<std::size_t> rank;    // index into JobSnapshot::ranks
  std::optional<std::size_t> thread;  // index into its threads
  int missing_rank = -1;              // kMissingRank
  std::string text;                   // "in all_reduce (step at train.py:17)"
};

struct WaitEdge {
  std::size_t from = 0, to = 0;  // indices of nodes
  WaitEvidence evidence = WaitEvidence::kFrame;
  Certainty certainty = Certainty::kLikely;
};

class WaitGraph {
 public:
  WaitGraph() = default;
  WaitGraph(const JobSnapshot& job, const std::vector<RankState>& states,
            const std::vector<PendingOperation>& operations);

  const std::vector<WaitNode>& nodes() const { return nodes_; }
  const std::vector<WaitEdge>& edges() const { return edges_; }
  // Indices of the edges that begin there, the most certain first.
  const std::vector<std::size_t>& edges_from(std::size_t node) const { return out_[node]; }
  const std::vector<std::size_t>& edges_to(std::size_t node) const { return in_[node]; }
  // The thread by which a rank is compared with the others, or the process that has ended. std::nullopt for a child,
  // or for a rank that could not be read.
  std::optional<std::size_t> node_of_rank(std::size_t rank) const;
  std::optional<std::size_t> node_of_missing(int rank) const;

  // Whether the waits of other ranks lead to this one. A rank that no other rank needs holds up none.
  bool is_needed(std::size_t rank) const;
  // Ranks that are needed and wait for no other rank, ascending: where the waits of the job end.
  std::vector<std::size_t> sinks() const;
  // Whether the members of this operation (an index into the pending ones) need themselves, through other operations.
  bool in_cycle(std::size_t operation) const;

 private:
  friend class WaitGraphBuilder;
  void index();
  void find_needed();
  void find_cycles();

  std::vector<WaitNode> nodes_;
  std::vector<WaitEdge> edges_;
  std::vector<std::vector<std::size_t>> out_, in_;
  std::vector<std::optional<std::size_t>> of_rank_;       // by rank: its node
  std::vector<std::optional<std::size_t>> operation_of_;  // by rank: the node of the operation that it waits in
  std::vector<std::size_t> operations_;                   // their nodes, as they are in the pending operations
  std::vector<bool> needed_, in_cycle_;                   // by node: some operation leads to it; it leads to itself
};

}  // namespace rankstacks::analyzers
