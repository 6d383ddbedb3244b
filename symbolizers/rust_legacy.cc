#include <utility>

#include "symbolizers/rust_characters.h"
#include "symbolizers/rust_names.h"

namespace rankstacks::symbolizers {
namespace {

// The character for the text between the '$' of an escape. std::nullopt if unknown, or a control character.
std::optional<std::uint64_t> escaped_character(std::string_view escape) {
  static constexpr std::pair<std::string_view, char> kNamed[] = {{"SP", '@'}, {"BP", '*'}, {"RF", '&'}, {"LT", '<'},
                                                                 {"GT", '>'}, {"LP", '('}, {"RP", ')'}, {"C", ','}};
  for (const auto& [name, c] : kNamed) {
    if (escape == name) return static_cast<unsigned char>(c);
  }
  if (escape.size() < 2 || escape.size() > 7 || escape[0] != 'u') return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : escape.substr(1)) {
    const std::size_t digit = kHexDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value << 4 | digit;
  }
  const bool is_control = value < 0x20 || (value >= 0x7f && value < 0xa0);
  return is_character(value) && !is_control ? std::optional(value) : std::nullopt;
}

// One element of a path. An unknown escape, and everything after it, stays unchanged.
void append_legacy(std::string& text, std::string_view element) {
  if (element.starts_with("_$")) element.remove_prefix(1);  // an identifier may not begin with '$'
  for (std::size_t at = 0; at < element.size();) {
    if (element[at] == '$') {
      const std::size_t end = element.find('$', at + 1);
      const auto c =
          end == std::string_view::npos ? std::nullopt : escaped_character(element.substr(at + 1, end - at - 1));
      if (!c) {
        text += element.substr(at);
        return;
      }
      append_utf8(text, *c);
      at = end + 1;
    } else if (element[at] == '.') {
      const bool is_pair = element.substr(at, 2) == "..";
      text += is_pair ? "::" : "-";  // "fn() -> T"
      at += is_pair ? 2 : 1;
    } else {
      text += element[at++];
    }
  }
}

// "h" and 16 digits, of which 5 are different: C++ names may also end in "h0000000000000000".
bool is_hash(std::string_view element) {
  if (element.size() != 17 || element[0] != 'h') return false;
  unsigned seen = 0;
  for (const char c : element.substr(1)) {
    const std::size_t digit = kHexDigits.find(c);
    if (digit == std::string_view::npos) return false;
    seen |= 1u << digit;
  }
  return __builtin_popcount(seen) >= 5;
}

}  // namespace

std::optional<std::string> demangle_rust_legacy(std::string_view name, std::size_t most_text) {
  if (!name.starts_with("_ZN")) return std::nullopt;
  name.remove_prefix(3);
  std::string text;
  std::string_view last;
  for (bool first = true; !name.starts_with('E');) {
    const std::size_t digits = name.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string_view::npos || digits > 9) return std::nullopt;
    const std::size_t size = std::stoul(std::string(name.substr(0, digits)));
    name.remove_prefix(digits);
    if (size == 0 || size >= name.size()) return std::nullopt;
    // One element is held back: the last one is the hash.
    if (!last.empty()) {
      if (!first) text += "::";
      append_legacy(text, last);
      first = false;
    }
    if (text.size() > most_text) return std::nullopt;
    last = name.substr(0, size);
    name.remove_prefix(size);
  }
  name.remove_prefix(1);
  if (text.empty() || !is_hash(last) || !(name.empty() || name[0] == '.')) return std::nullopt;
  return text;
}

}  // namespace rankstacks::symbolizers
