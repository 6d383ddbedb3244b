#include "model/python_value.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace rankstacks {
namespace {

constexpr std::ptrdiff_t kLeast = 5;  // with fewer characters left there is room for "..." alone
constexpr std::string_view kMore = "...";

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

std::string repr_of_string(const PythonValue& value, std::ptrdiff_t longest) {
  std::string shown = "\"";
  std::ptrdiff_t characters = 0;
  const auto add = [&](char byte) {
    if (begins_character(byte)) ++characters;
    if (characters > longest - kLeast) return false;
    shown += byte;
    return true;
  };
  bool whole = !value.cut;
  for (const char byte : value.text) {
    // py-spy's own way of quoting: only these two are escaped.
    const bool fits = byte == '\n' ? add('\\') && add('n') : byte == '\'' ? add('\\') && add('"') : add(byte);
    if (fits) continue;
    whole = false;
    break;
  }
  if (!whole) shown += kMore;
  return shown + '"';
}

std::string repr_of_items(const PythonValue& value, std::ptrdiff_t longest) {
  const bool is_dict = value.kind == PythonValue::Kind::kDict;
  const std::string_view ends = is_dict ? "{}" : value.kind == PythonValue::Kind::kList ? "[]" : "()";
  std::string shown(ends.substr(0, 1));
  std::ptrdiff_t left = longest - 2;
  const auto add = [&](std::string_view item) {
    if (shown.size() > 1) shown += ", ";
    shown += item;
  };
  bool more = value.cut;
  const std::size_t step = is_dict ? 2 : 1;
  for (std::size_t i = 0; i + step <= value.items.size(); i += step) {
    std::string item = repr_of(value.items[i], left);
    if (is_dict) item += ": " + repr_of(value.items[i + 1], left);
    left -= static_cast<std::ptrdiff_t>(item.size()) + 2;
    more |= left <= kLeast;
    if (left <= kLeast) break;
    add(item);
  }
  if (more) add(kMore);
  return shown.append(ends.substr(1));
}

}  // namespace

std::string repr_of(const PythonValue& value, std::ptrdiff_t longest) {
  if (longest <= kLeast) return std::string(kMore);
  switch (value.kind) {
    case PythonValue::Kind::kWord: return value.text;
    case PythonValue::Kind::kString: return repr_of_string(value, longest);
    default: return repr_of_items(value, longest);
  }
}

std::string repr_of_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> scientific{};
  const auto end = std::to_chars(scientific.data(), scientific.data() + scientific.size(), std::fabs(value),
                                 std::chars_format::scientific)
                       .ptr;
  const std::string_view text(scientific.data(), static_cast<std::size_t>(end - scientific.data()));
  const std::size_t e = text.find('e');
  int exponent = 0;  // of the first digit
  const std::size_t sign = text[e + 1] == '+' ? 2 : 1;
  std::from_chars(text.data() + e + sign, text.data() + text.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  if (exponent < 0) digits.insert(0, static_cast<std::size_t>(-exponent), '0');
  const std::size_t whole = exponent < 0 ? 1 : static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  if (digits.size() > whole) digits.insert(whole, 1, '.');
  return std::signbit(value) ? '-' + digits : digits;
}

}  // namespace rankstacks
