// `rankstacks job`: asks the nodes, and makes one job of their answers.
#pragma once

#include <iosfwd>
#include <optional>

#include "cli/options.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

// std::nullopt, after a message: no node could be asked, or `status` is the exit status of what was asked for instead
// (--print, doctor).
std::optional<JobSnapshot> take_job_of_nodes(const Options& options, std::ostream& out, std::ostream& err, int& status);

}  // namespace rankstacks::cli
