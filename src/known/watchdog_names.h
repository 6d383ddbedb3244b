// How programs call a thread of their own that ends the process when nothing moves any more. Such names are a
// convention, and no proof: analyzers/own_watchdogs.h says what has to be added.
#pragma once

#include <span>
#include <string_view>

namespace rankstacks::known {

// Parts of names, in lower case and without separators.
std::span<const std::string_view> watchdog_words();

// Whether a function, or a thread, is called so: "collective_watchdog", "HangDetector::run()", "heartbeat-mon".
bool is_watchdog_name(std::string_view name);

}  // namespace rankstacks::known
