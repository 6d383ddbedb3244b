// rankstacks capture: a small core of each process, with what no core can say (docs/captures.md).
#pragma once

#include <iosfwd>
#include <optional>

#include "analyzers/analysis.h"
#include "cli/options.h"
#include "model/snapshot.h"
#include "small_core/kept_jobs.h"

namespace rankstacks::cli {

// Writes the small cores of a job that was recorded (CaptureOptions::kept) to options.output, and their names to `out`.
// Returns false, after a message, if some could not be written.
bool write_captures(const Options& options, JobSnapshot job, std::optional<analyzers::Analysis> analysis,
                    small_core::KeptJobs& kept, std::ostream& out, std::ostream& err);

}  // namespace rankstacks::cli
