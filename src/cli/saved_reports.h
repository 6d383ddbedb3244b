// Files that the command line names: saved reports, dumps of other tools, rules.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "model/snapshot.h"

namespace rankstacks::cli {

// Reads each by `read`, of which each regular file gets `limit` at most. Pipes are waited for as long as it takes; a
// file may lie on a file system that no longer answers.
std::vector<Result<std::string>> read_files(const std::vector<std::string>& paths,
                                            std::chrono::steady_clock::duration limit,
                                            Result<std::string> (*read)(const std::string&));

// Reads saved reports, or dumps of other tools, as one job. A file that cannot be read gets a message, and makes
// `all_read` false; an error is returned if none could be read.
Result<JobSnapshot> read_snapshots(const std::vector<std::string>& paths, const FileRanks& ranks,
                                   std::chrono::steady_clock::duration limit, std::ostream& err, bool& all_read);

}  // namespace rankstacks::cli
