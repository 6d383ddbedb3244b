// The words for the values of an enumeration in reports and in files of rules: one table for writing and reading.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace rankstacks {
inline namespace base {

template <class E, std::size_t N>
using WordTable = std::array<std::pair<E, std::string_view>, N>;

// Returns "" if the table has no word for this value.
template <class E, std::size_t N>
constexpr std::string_view word_of(const WordTable<E, N>& table, E value) {
  for (const auto& [e, word] : table)
    if (e == value) return word;
  return "";
}

template <class E, std::size_t N>
constexpr std::optional<E> value_of(const WordTable<E, N>& table, std::string_view text) {
  for (const auto& [e, word] : table)
    if (word == text) return e;
  return std::nullopt;
}

}  // namespace base
}  // namespace rankstacks
