// rankstacks capture: a small core of each process, with what no core can say (docs/captures.md).
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzers/analysis.h"
#include "cli/options.h"
#include "model/snapshot.h"
#include "small_core/core_files.h"
#include "small_core/kept_jobs.h"

namespace rankstacks::cli {

// The small cores of a job, in memory.
struct Captures {
  JobSnapshot job;  // as it is shown
  std::vector<small_core::NamedCore> cores;
  std::vector<std::size_t> ranks;  // of each: its index into job.ranks
};
Captures make_captures(JobSnapshot job, std::optional<analyzers::Analysis> analysis, small_core::KeptJobs& kept,
                       bool with_secrets);

// A part of a file's name: of letters, digits and what else no shell and no file system minds.
std::string plain_name(std::string_view text);

// Writes the small cores of a job that was recorded (CaptureOptions::kept) to options.output, and their names to `out`.
// Returns false, after a message, if some could not be written.
bool write_captures(const Options& options, JobSnapshot job, std::optional<analyzers::Analysis> analysis,
                    small_core::KeptJobs& kept, std::ostream& out, std::ostream& err);

}  // namespace rankstacks::cli
