// How often and how long a job is looked at where the command line does not say: until it is told whether it moves.
#pragma once

#include <optional>

#include "analyzers/analysis.h"
#include "model/snapshot.h"

namespace rankstacks {

struct Options;   // options.h

// Three looks in a second; twenty more in two where these leave it open; then for as long as --max-wait says, where all that is seen is waits for GPUs or loops, which a long
// step shows as well (not with --gpu, which asks the GPUs themselves). The last look at which all ranks were still there is the job as it is shown. `analysis`: of what is returned, where it was made on the way.
JobSnapshot sample_as_needed(const Options& options, std::optional<Analysis>& analysis);

}  // namespace rankstacks
