// Which ranks the workers of one server are, by the titles of all of them.
//
// vLLM and SGLang number tensor parallel ranks next to each other and pipeline stages farthest apart. Replicas
// (DP) have worlds of their own; here they follow each other, so that each worker of a server has a number of its own.
// Where tensor parallel ranks are numbered through all replicas (SGLang's DP attention), those numbers count.
#pragma once

#include <vector>

#include "capture/rank_identity.h"
#include "known/process_titles.h"

namespace rankstacks::capture {

// Parallel to `titles`; an entry has no rank if its process is no worker. The sizes of the axes follow from the largest
// place on each; `local_world_size` is only stated if the first rank is among them, as a server on several machines
// counts through all of them.
std::vector<RankIdentity> ranks_of_titles(const std::vector<known::Title>& titles);

}  // namespace rankstacks::capture
