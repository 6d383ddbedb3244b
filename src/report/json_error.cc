#include "report/json_error.h"

#include <string_view>

namespace rankstacks::report {

std::string json_error_text(const nlohmann::detail::exception& error) {
  if (error.id == kNumberOutOfRange) return "found a number out of range";
  // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error while parsing object - invalid
  // string: missing closing quote; last read: '"x'; expected string literal"
  std::string text = error.what();
  const std::size_t number = text.find("] ");
  if (text.starts_with('[') && number != std::string::npos) text.erase(0, number + 2);
  constexpr std::string_view kAt = "parse error at ";
  if (text.starts_with(kAt)) text.erase(0, kAt.size());
  if (const std::size_t quoted = text.find("; last read: "); quoted != std::string::npos) {
    const std::size_t expected = text.rfind("'; expected ");
    text.erase(quoted, expected == std::string::npos || expected < quoted ? std::string::npos : expected + 1 - quoted);
  }
  return text;
}

}  // namespace rankstacks::report
