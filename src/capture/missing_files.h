// Which of the files that cores lack matter, and in which packages they are.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "model/missing_file.h"
#include "model/snapshot.h"

namespace rankstacks::capture {

using MissingFiles = std::map<std::string, std::vector<MissingFile>>;  // of cores, by their paths

// Puts the files through which most frames of each rank lead first, and names their packages, as far as this machine or
// `sysroot` knows them: dpkg's lists, RECORD of wheels, conda-meta. Then the rank has them, and its problem of its
// missing files is the one that says so. What has not been found out after `limit` stays unknown.
void describe_missing_files(JobSnapshot& job, MissingFiles missing, const std::string& sysroot,
                            std::chrono::steady_clock::duration limit);

}  // namespace rankstacks::capture
