// Which job a process belongs to, found once for all calls that ask within a few seconds: for that, all processes of
// the machine are read, which takes eight calls at once eight times as long.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/private_directory.h"
#include "capture/found_job.h"

namespace rankstacks::cli {

// The job is known by its ranks: the same for each of them, and no other job's, as no two processes of a boot have one
// pid and one start. Letters and digits.
std::string key_of(const std::vector<capture::FoundProcess>& processes);

// The key of the job of that process. `find` finds the job's processes; it is called if no other call has found them in
// the last seconds, and with a lock held where that is free soon.
std::string find_together(const PrivateDirectory& directory, Pid pid, std::uint64_t start_ticks,
                          const Deadline& deadline, const std::function<std::vector<capture::FoundProcess>()>& find);

}  // namespace rankstacks::cli
