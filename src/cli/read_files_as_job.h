// Cores, captures, archives of captures, saved reports and other tools' dumps, given together, as one job.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

// `paths`: of `rankstacks core`, where whatever is no saved report is a core, and one that cannot be read a failed
// rank; or of `rankstacks report`, where whatever is no core is a report. A saved report or an archive that cannot be
// read gets a message, and makes `all_read` false; an error is returned if nothing could be read.
Result<JobSnapshot> read_files_as_job(const std::vector<std::string>& paths, const Options& options, std::ostream& err,
                                      bool& all_read);

}  // namespace rankstacks::cli
