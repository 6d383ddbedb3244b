#include "base/shell_quoted.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/sanitize.h"
#include "base/text.h"

namespace rankstacks {
inline namespace base {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || contains("_@%+=:,./-", c);
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string out;
  if (sanitize(text) != text) {
    // Always three digits, because the next character may be a digit itself.
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte >= 0x7f || c == '\'' || c == '\\') out += fmt::format("\\{:03o}", byte);
      else out += c;
    }
    return "$'" + out + "'";
  }
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else out += c;
  }
  return "'" + out + "'";
}

}  // namespace base
}  // namespace rankstacks
