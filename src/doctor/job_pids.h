// The processes that `attach` would sample, given the same request.
#pragma once

#include <vector>

#include <tl/expected.hpp>

#include "capture/capture_job.h"

namespace rankstacks::doctor {

tl::expected<std::vector<Pid>, capture::NotChosen> pids_of(const capture::LiveRequest& request);

}  // namespace rankstacks::doctor
