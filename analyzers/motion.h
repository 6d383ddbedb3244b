// Several looks at one job folded into one: what moves between them, and what stands still.
//
// A thread has moved when its place in its program differs between two samples. Inside a wait for other ranks nothing counts as a place (an MPI library
// spins through dozens of functions, a store polls): there the place is the line that called the wait. Elsewhere it is the whole stack, made
// comparable as for clusters (normalize.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks {

// Time on a processor between the samples.
struct Ran {
  double cpu_ms = 0;
  std::int64_t runs = 0;
};

// Fills ThreadSnapshot::motion of `job`, the first look, for the threads that a later one found again. `later`: ranks with FrameIds of job.frames.
// `ran`: of a thread between the samples; `span_ms`: how long that was in all.
void fold_samples(JobSnapshot& job, const std::vector<std::vector<RankSnapshot>>& later, const std::function<Ran(Tid)>& ran, double span_ms);

}  // namespace rankstacks
