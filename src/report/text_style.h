// Colours, if they are wanted. Texts are measured and cut before a style is added to them.
#pragma once

#include <string>
#include <string_view>

namespace rankstacks::report {

class TextStyle {
 public:
  explicit TextStyle(bool color) : color_(color) {}

  std::string strong(std::string_view text) const { return with("1", text); }
  std::string alarm(std::string_view text) const { return with("1;31", text); }
  std::string good(std::string_view text) const { return with("32", text); }
  std::string faint(std::string_view text) const { return with("2", text); }

 private:
  std::string with(std::string_view code, std::string_view text) const {
    if (!color_ || text.empty()) return std::string(text);
    return std::string("\x1b[").append(code).append("m").append(text).append("\x1b[0m");
  }

  bool color_;
};

}  // namespace rankstacks::report
