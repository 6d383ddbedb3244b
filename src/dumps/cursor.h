// Takes a line of text apart from its beginning. Nothing is copied: what is taken refers to the line.
#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rankstacks::dumps {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

inline std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// The whole of `text` as a number; std::nullopt if it is none, or does not fit.
template <class T>
std::optional<T> number_of(std::string_view text, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Cursor {
 public:
  explicit Cursor(std::string_view line) : rest_(line) {}

  std::string_view rest() const { return rest_; }

  // Each of these takes nothing if the rest of the line does not begin like that.
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  void blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  template <class T>
  std::optional<T> number(int base = 10) {
    T value{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value, base);
    if (error != std::errc() || value < 0) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  // "0x7f12"
  std::optional<std::uint64_t> hex() {
    const std::string_view before = rest_;
    if (!take("0x")) return std::nullopt;
    const auto value = number<std::uint64_t>(16);
    if (!value) rest_ = before;
    return value;
  }
  // What stands before `mark`, which is taken too.
  std::optional<std::string_view> until(std::string_view mark) {
    const std::size_t at = rest_.find(mark);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view before = rest_.substr(0, at);
    rest_.remove_prefix(at + mark.size());
    return before;
  }

 private:
  std::string_view rest_;
};

}  // namespace rankstacks::dumps
