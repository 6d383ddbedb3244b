// Plans which processes a live capture is of: those that were named, or those of one job (--job). Nothing is stopped
// for it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture_job.h"
#include "capture/job_choice.h"
#include "capture/job_processes.h"
#include "capture/preparer.h"

namespace rankstacks::capture {

// The processes among which the request's are planned.
ProcessTable table_for(const LiveRequest& request);

// Either `targets`, or why there are none.
struct LivePlan {
  std::vector<PlannedTarget> targets;
  std::optional<NotChosen> not_chosen;
};

// With --job the targets are the ranks of the chosen job, their children, and processes that do not answer but have
// their user, name and launcher. All other ranks of the machine are only read for their environment and place.
LivePlan plan_live(const LiveRequest& request, const ProcessTable& table, Preparer& preparer);

}  // namespace rankstacks::capture
