// What the verdict is made from: the snapshot, and what was found in it. These are references: the owner of the data
// must outlive this struct.
#pragma once

#include <vector>

#include "analyzers/gone_ranks.h"
#include "analyzers/pending_operations.h"
#include "analyzers/rank_state.h"
#include "analyzers/wait_graph.h"
#include "known/kinds.h"
#include "model/families.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

struct Facts {
  const JobSnapshot& job;
  const Families& families;
  const std::vector<std::vector<known::Role>>& roles;  // [rank index][thread index]
  const std::vector<RankState>& states;
  const std::vector<PendingOperation>& operations;
  const WaitGraph& waits;
  const MissingRanks& missing;
};

}  // namespace rankstacks::analyzers
