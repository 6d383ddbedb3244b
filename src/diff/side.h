// The two reports that are compared.
#pragma once

#include "analyzers/analysis.h"
#include "model/snapshot.h"

namespace rankstacks::diff {

struct Side {
  JobSnapshot job;
  analyzers::Analysis analysis;  // of `job`
};

// Both with one table of frames, so that equal frames have equal FrameIds.
struct Sides {
  Side old, now;
};
Sides with_common_frames(Side old, Side now);

}  // namespace rankstacks::diff
