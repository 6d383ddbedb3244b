// The processes that `attach` would sample, given the same request.
#pragma once

#include <vector>

#include "capture/capture_job.h"

namespace rankstacks::doctor {

std::vector<Pid> pids_of(const capture::LiveRequest& request);

}  // namespace rankstacks::doctor
