// The values that redaction takes out of a process's environment and arguments, for what holds them as bytes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::redact {

// Adds what `text` has where `redacted`, which was made of it, has kSecret.
void add_hidden(std::string_view text, std::string_view redacted, std::set<std::string>& values);

// Each once, the longest first.
std::vector<std::string> secret_values(const std::map<std::string, std::string>& environment,
                                       const std::vector<std::string>& command);

}  // namespace rankstacks::redact
