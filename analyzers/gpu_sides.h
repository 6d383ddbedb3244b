// Ranks that all wait, some of them for their GPUs: whether these are in a collective, or in work of their own.
#pragma once

#include <optional>

#include "analyzers/waiting_job.h"

namespace rankstacks::analyzers {

// Some wait for their GPUs, the others in a collective on the host, as gloo's are, and all have launched the same
// collectives of NCCL: what those GPUs are busy with is no collective that the others have yet to launch. Nobody, if
// the Flight Recorder has such a collective.
std::optional<Deadlock> own_gpu_work(const WaitingJob& waiting);

// Most ranks wait in a collective for ranks that wait for their GPUs, as members of its group. Either these wait for
// a collective's kernel, which is then another one, or for a kernel of their own.
std::optional<Deadlock> absent_from_a_group(const WaitingJob& waiting);

// Whether the suspects are accused of not having launched what the others wait for, although their GPU runs a
// collective.
bool accuses_a_collective_kernel(const WaitingJob& waiting, const Deadlock& found);

}  // namespace rankstacks::analyzers
