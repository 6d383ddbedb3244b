// Fills in what ranks have loaded and under which conditions they run: RankSnapshot::modules and ::environment.
//
//     every process    its limits, processors, control groups, root          one piece of work each
//     every file, every directory of packages, every kind of surroundings    one piece of work each, for the whole job
//
// Runs after the stop, while the processes run. Nothing of a target is run or imported: files are read as far as bounds
// allow, by workers that can be given up (base/unattended.h). What does not answer within 2 s is not known.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "capture/rank_stacks.h"

namespace rankstacks::capture {

using Variables = std::map<std::string, std::string>;

// Live processes. `environment`: the present variables of a process.
void add_versions(std::vector<RankStacks>& ranks, const std::function<Variables(Pid)>& environment);

// The same for cores: what a core itself contains, for the worker that reads it ...
void add_environment_of_core(RankStacks& rank, const Variables& environment);
// ... what surrounds its process `pid`, while the kernel writes the core; `sysroot`: the process's root directory, ""
// if that is this process's own one ...
void add_surroundings_of_dying(RankSnapshot& rank, Pid pid, const std::string& sysroot, const Variables& environment);
// ... and what the files of its modules on this machine show, for all cores at once.
void add_modules_of_cores(std::vector<RankStacks>& ranks);

// The version of the interpreter is known when its threads have been read.
void set_python_version(RankSnapshot& rank);

}  // namespace rankstacks::capture
