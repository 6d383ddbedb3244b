// Folds several samples of one job into one snapshot: what changes between them, and what does not.
//
// A thread has moved if its place in the program differs between two samples. Within a wait for other ranks, or for the
// GPU, the place is the line that called the wait, because frames inside it mean nothing (an MPI library spins through
// dozens of functions, a store is polled). Elsewhere the place is the whole stack, normalised as for clusters
// (normalize.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// What a thread consumed of a processor between the samples.
struct Ran {
  double cpu_ms = 0;
  std::int64_t runs = 0;
};

// Fills ThreadSnapshot::motion of `job`, the first sample, for the threads that a later sample found again. `later`
// has the ranks of the later samples, with FrameIds of job.frames. `ran` returns what a thread consumed between the
// samples; `span_ms` is the time between the first and the last.
void fold_samples(JobSnapshot& job, const std::vector<std::vector<RankSnapshot>>& later,
                  const std::function<Ran(Tid)>& ran, double span_ms);

// The same of the dumps of other tools. `earlier`: those of a process that were made before the one that is in the job,
// one after the other, by its index in job.ranks; with FrameIds of job.frames. Neither the time between them is known
// nor whether a thread ran: Motion::span_ms, runs and cpu_ms stay 0.
void fold_earlier(JobSnapshot& job, const std::map<std::size_t, std::vector<RankSnapshot>>& earlier);

}  // namespace rankstacks::analyzers
