// Small questions about texts.
#pragma once

#include <cstddef>
#include <string_view>

namespace rankstacks {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// What follows the noun that is counted: "1 thread", "2 threads".
constexpr std::string_view plural(std::size_t count, std::string_view ending = "s") { return count == 1 ? std::string_view() : ending; }

}  // namespace rankstacks
