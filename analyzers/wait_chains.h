// The ways through the graph of waits that lead to the suspects, and on to where their own waits end.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "analyzers/wait_graph.h"

namespace rankstacks {

struct Suspect;   // analysis.h

// How a suspect holds up somebody: from a rank that depends on it, over the suspect, to where its own wait ends or closes a circle.
struct WaitChain {
  struct Link {
    std::size_t node = 0;
    std::optional<WaitEvidence> evidence;   // of the edge to the next link; the last has none
  };
  std::size_t suspect = 0;                  // index into Verdict::suspects
  std::optional<std::size_t> from;          // index into JobSnapshot::ranks; nothing: nobody is seen to depend on it
  std::vector<Link> links;
};
std::vector<WaitChain> chains_of(const WaitGraph& graph, const std::vector<Suspect>& suspects);

}  // namespace rankstacks
