// The values that redaction takes out of a process's environment and arguments, for what holds them as bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace rankstacks::redact {

// Each once, the longest first.
std::vector<std::string> secret_values(const std::map<std::string, std::string>& environment,
                                       const std::vector<std::string>& command);

}  // namespace rankstacks::redact
