// The paths in the graph of waits that lead to the suspects, and on to where the suspects' own waits end.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "analyzers/wait_graph.h"

namespace rankstacks::analyzers {

struct Suspect;  // analysis.h

// How a suspect holds up others: from a rank that depends on it, through the suspect, to where its own wait ends or
// closes a cycle.
struct WaitChain {
  struct Link {
    std::size_t node = 0;
    std::optional<WaitEvidence> evidence;  // of the edge to the next link; std::nullopt for the last link
  };
  std::size_t suspect = 0;  // index into Verdict::suspects
  // Index into JobSnapshot::ranks; std::nullopt if no rank is seen to depend on the suspect.
  std::optional<std::size_t> from;
  std::vector<Link> links;
};
std::vector<WaitChain> chains_of(const WaitGraph& graph, const std::vector<Suspect>& suspects);

}  // namespace rankstacks::analyzers
