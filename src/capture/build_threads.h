// The threads of one rank's snapshot: native and Python frames merged and interned, what each thread waits for, and the
// problems of the rank.
#pragma once

#include "capture/rank_stacks.h"
#include "capture/symbol_batch.h"

namespace rankstacks::capture {

// Fills in snapshot.threads, python_version and status.
void build_threads(RankStacks& rank, const SymbolBatch& symbols, FrameTable& frames);

}  // namespace rankstacks::capture
