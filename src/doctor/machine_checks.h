// What this machine, this container and this user allow at all, before any process is named.
#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/self.h"
#include "doctor/system.h"

namespace rankstacks::doctor {

std::vector<Finding> check_rights(const Self& self);  // ptrace, memory, capabilities, yama, seccomp, mapped files
std::vector<Finding> check_surroundings(const System& system, const Self& self);  // container, namespaces, /proc

}  // namespace rankstacks::doctor
