// How often and how long a job is sampled if the command line does not say: until it is known whether the job moves.
#pragma once

#include <functional>
#include <optional>

#include <tl/expected.hpp>

#include "analyzers/analysis.h"
#include "capture/capture_job.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

struct Options;  // options.h

// Takes three samples within a second. If they leave it open, it takes twenty more within two seconds. Then it goes on
// for as long as --max-wait says if all that is seen is waits for GPUs, or loops, which a long step shows as well (not
// with --gpu, which asks the GPUs themselves), and for some seconds if a suspect may be in a long step, or a rank that
// did not run at all in a job that moves. The last sample in which all ranks were still there is the job as it is
// shown. `analysis`: receives the analysis of the returned snapshot, if one was made on the way. There is no snapshot
// if --job does not say which of several jobs is meant, or names none.
tl::expected<JobSnapshot, capture::NotChosen> sample_as_needed(const Options& options,
                                                               std::optional<analyzers::Analysis>& analysis);

// After the GPUs were asked once. If what runs on them may be a long step, samples the job for some seconds more and
// lets `ask_gpus` ask them again: a kernel that is still there then does not end. Otherwise returns `job` as it is.
JobSnapshot ask_gpus_as_needed(const Options& options, JobSnapshot job,
                               const std::function<void(JobSnapshot&)>& ask_gpus,
                               std::optional<analyzers::Analysis>& analysis);

}  // namespace rankstacks::cli
