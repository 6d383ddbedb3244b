#include "symbolizers/rust_characters.h"

#include <algorithm>
#include <vector>

namespace rankstacks::symbolizers {
namespace {

constexpr std::size_t kMaxPunycode = 256;

}  // namespace

void append_utf8(std::string& text, std::uint64_t c) {
  const auto put = [&](std::uint64_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | (c >> 6));
  } else {
    if (c < 0x1'0000) {
      put(0xe0 | (c >> 12));
    } else {
      put(0xf0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3f));
    }
    put(0x80 | ((c >> 6) & 0x3f));
  }
  put(0x80 | (c & 0x3f));
}

void append_escaped(std::string& text, unsigned char c, char quote) {
  static constexpr std::string_view kEscaped("\0\t\n\r\\", 5), kLetters = "0tnr\\";
  if (const std::size_t at = kEscaped.find(static_cast<char>(c)); at != std::string_view::npos) {
    (text += '\\') += kLetters[at];
  } else if (c == static_cast<unsigned char>(quote)) {
    (text += '\\') += quote;
  } else if (c < 0x20 || c == 0x7f) {
    text += "\\u{";
    if (c >= 0x10) text += kHexDigits[c >> 4];
    (text += kHexDigits[c & 15]) += '}';
  } else {
    text += static_cast<char>(c);
  }
}

std::optional<std::string> decode_punycode(std::string_view ascii, std::string_view deltas) {
  constexpr std::uint64_t kBase = 36, kLeast = 1, kMax = 26, kMaxNumber = std::uint64_t{1} << 32;
  std::vector<std::uint32_t> characters(ascii.begin(), ascii.end());
  std::uint64_t character = 0x80, place = 0, bias = 72, damping = 700;
  for (std::size_t at = 0; at < deltas.size();) {
    std::uint64_t delta = 0, weight = 1;
    for (std::uint64_t k = kBase;; k += kBase) {
      if (at == deltas.size()) return std::nullopt;
      const char c = deltas[at++];
      if (!is_digit(c) && (c < 'a' || c > 'z')) return std::nullopt;
      const std::uint64_t digit = is_digit(c) ? c - '0' + 26u : c - 'a' + 0u;
      const std::uint64_t threshold = k <= bias ? kLeast : std::min(std::max(k - bias, kLeast), kMax);
      delta += digit * weight;
      if (delta >= kMaxNumber) return std::nullopt;
      if (digit < threshold) break;
      weight *= kBase - threshold;
      if (weight >= kMaxNumber) return std::nullopt;
    }
    const std::uint64_t count = characters.size() + 1;
    if (count > kMaxPunycode) return std::nullopt;
    place += delta;
    character += place / count;
    place %= count;
    if (!is_character(character)) return std::nullopt;
    characters.insert(characters.begin() + static_cast<std::ptrdiff_t>(place++), static_cast<std::uint32_t>(character));
    delta = delta / damping;
    damping = 2;
    delta += delta / count;
    std::uint64_t k = 0;
    for (; delta > (kBase - kLeast) * kMax / 2; k += kBase) delta /= kBase - kLeast;
    bias = k + (kBase - kLeast + 1) * delta / (delta + 38);
  }
  std::string text;
  for (const std::uint32_t c : characters) append_utf8(text, c);
  return text;
}

}  // namespace rankstacks::symbolizers
