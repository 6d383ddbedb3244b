// Small helpers for text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace rankstacks {
inline namespace base {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
inline bool contains(std::string_view text, char part) { return text.find(part) != std::string_view::npos; }

template <class Words>
bool is_one_of(std::string_view text, const Words& words) {
  for (const std::string_view word : words)
    if (text == word) return true;
  return false;
}
inline bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return is_one_of<std::initializer_list<std::string_view>>(text, words);
}

// The plural ending of a counted noun: "1 thread", "2 threads".
constexpr std::string_view plural(std::size_t count, std::string_view ending = "s") {
  return count == 1 ? std::string_view() : ending;
}

// "1 thread", "2 threads"; "2 processes" with the ending "es".
inline std::string counted(std::size_t count, std::string_view noun, std::string_view ending = "s") {
  return std::to_string(count).append(" ").append(noun).append(plural(count, ending));
}

// "a, b, c"; of more than `limit`: "a, b and 3 more".
template <class Words>
std::string joined(const Words& words, std::string_view between = ", ", std::size_t limit = SIZE_MAX) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& word : words) {
    if (shown == limit) return text.append(" and ").append(std::to_string(words.size() - limit)).append(" more");
    if (shown++ > 0) text += between;
    text += word;
  }
  return text;
}

}  // namespace base
}  // namespace rankstacks
