// A comparison as text for people: what has moved first, then the main threads, the others by role, clusters, verdict,
// counters and settings.
#pragma once

#include <string>
#include <vector>

#include "diff/job_diff.h"

namespace rankstacks::diff {

struct TextOptions {
  bool color = false;
  bool all_threads = false;  // every thread on a line of its own
  int width = 100;
};

std::string diff_text(const Sides& sides, const JobDiff& diff, const TextOptions& options);

}  // namespace rankstacks::diff
