// Small helpers for text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rankstacks {
inline namespace base {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
inline bool contains(std::string_view text, char part) { return text.find(part) != std::string_view::npos; }

// The plural ending of a counted noun: "1 thread", "2 threads".
constexpr std::string_view plural(std::size_t count, std::string_view ending = "s") {
  return count == 1 ? std::string_view() : ending;
}

// "1 thread", "2 threads"; "2 processes" with the ending "es".
inline std::string counted(std::size_t count, std::string_view noun, std::string_view ending = "s") {
  return std::to_string(count).append(" ").append(noun).append(plural(count, ending));
}

}  // namespace base
}  // namespace rankstacks
