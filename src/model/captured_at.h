// A report's time in its own form.
#pragma once

#include <chrono>
#include <string>

namespace rankstacks {
inline namespace model {

// UTC: "2026-01-31T12:00:00.123Z"
std::string captured_at_text(std::chrono::system_clock::time_point time);

}  // namespace model
}  // namespace rankstacks
