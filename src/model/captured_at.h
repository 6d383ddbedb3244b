// A report's time in its own form.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace rankstacks {
inline namespace model {

// UTC: "2026-01-31T12:00:00.123Z"
std::string captured_at_text(std::chrono::system_clock::time_point time);

// The same in milliseconds since 1970; std::nullopt if it is not such a time.
std::optional<double> captured_at_ms(const std::string& text);

}  // namespace model
}  // namespace rankstacks
