// The files and interpreters of a process or a core, in the form in which the checks use them.
#pragma once

#include "doctor/system.h"

namespace rankstacks::doctor {

Result<TargetFacts> facts_of_process(Pid pid);
Result<TargetFacts> facts_of_core(const std::string& path, const target::CoreOptions& options);

}  // namespace rankstacks::doctor
