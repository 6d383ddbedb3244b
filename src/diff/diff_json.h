// A comparison as JSON (docs/diff.md): one object, UTF-8, ends with a newline.
#pragma once

#include <string>

#include "diff/job_diff.h"

namespace rankstacks::diff {

// `old_path`, `now_path`: the files, as the command line names them.
std::string diff_json(const Sides& sides, const JobDiff& diff, const std::string& old_path,
                      const std::string& now_path);

}  // namespace rankstacks::diff
