// Which ends of processes in the kernel's log may be those of processes that a job lacks.
#pragma once

#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::capture {

// Whether a rank of this machine is not there, has ended, or could not be read. The log is read only then.
bool lacks_processes(const JobSnapshot& job);

// Of `logged`, those since the job's first process of `host` started that have the name of one of the job's threads
// there: of a rank that is gone nothing else is known. The newest 16.
std::vector<KernelKill> kills_in_job(const JobSnapshot& job, const std::string& host,
                                     std::vector<std::pair<double, KernelKill>> logged);

// The same from this machine's log. Empty: none, or the log may not be read.
std::vector<KernelKill> kernel_kills_of(const JobSnapshot& job, const std::string& host);

}  // namespace rankstacks::capture
