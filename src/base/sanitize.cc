#include "base/sanitize.h"

#include <cstdint>
#include <vector>

#include <fmt/format.h>

namespace rankstacks {
inline namespace base {
namespace {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 0: the byte here starts no valid sequence
};

// One code point of UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
CodePoint decode(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return {};
  std::uint32_t value = first & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = (value << 6) | (byte(i) & 0x3f);
  }
  static constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {};
  return {value, length};
}

struct Interval {
  std::uint32_t first, last;
};

template <std::size_t N>
bool in(const Interval (&table)[N], std::uint32_t c) {
  for (const Interval& i : table)
    if (c >= i.first && c <= i.last) return true;
  return false;
}

// Controls (C0, DEL, C1), zero width and direction marks, line and paragraph separators, bidi embeddings and isolates,
// the byte order mark, interlinear annotation, non-characters, tags.
constexpr Interval kUnsafe[] = {{0x00, 0x1f},      {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},
                                {0x180e, 0x180e},  {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
                                {0xfeff, 0xfeff},  {0xfff9, 0xfffb}, {0xfdd0, 0xfdef}, {0xfffe, 0xffff},
                                {0xe0000, 0xe0fff}};
constexpr Interval kWide[] = {{0x1100, 0x115f}, {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
                              {0xf900, 0xfaff}, {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                              {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}};
constexpr Interval kCombining[] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
                                   {0x64b, 0x65f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x20d0, 0x20ff},
                                   {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};

std::size_t width_of(std::uint32_t c) { return in(kCombining, c) ? 0 : in(kWide, c) ? 2 : 1; }

}  // namespace

std::string sanitize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const unsigned char first = static_cast<unsigned char>(text[0]);
    if (first >= 0x20 && first < 0x7f) {
      out += text[0];
      text.remove_prefix(1);
      continue;
    }
    const CodePoint c = decode(text);
    if (c.bytes == 0) {
      out += fmt::format("\\x{:02x}", first);
      text.remove_prefix(1);
      continue;
    }
    if (!in(kUnsafe, c.value)) out += text.substr(0, c.bytes);
    else if (c.value == '\n') out += "\\n";
    else if (c.value == '\t') out += "\\t";
    else if (c.value == '\r') out += "\\r";
    else if (c.value < 0x80) out += fmt::format("\\x{:02x}", c.value);
    else if (c.value <= 0xffff) out += fmt::format("\\u{:04x}", c.value);
    else out += fmt::format("\\U{:08x}", c.value);
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string escape_in_json(std::string_view json) {
  std::string out;
  out.reserve(json.size() + 16);
  while (!json.empty()) {
    const CodePoint c = decode(json);
    const std::size_t bytes = c.bytes == 0 ? 1 : c.bytes;
    if (c.value < 0x7f || c.bytes == 0 || !in(kUnsafe, c.value)) {
      out += json.substr(0, bytes);
    } else if (c.value <= 0xffff) {
      out += fmt::format("\\u{:04x}", c.value);
    } else {  // RFC 8259, 7: as UTF-16 has it, a surrogate pair
      const std::uint32_t above = c.value - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (above >> 10), 0xdc00 + (above & 0x3ff));
    }
    json.remove_prefix(bytes);
  }
  return out;
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const CodePoint c = decode(text);
    columns += c.bytes == 0 ? 1 : width_of(c.value);
    text.remove_prefix(c.bytes == 0 ? 1 : c.bytes);
  }
  return columns;
}

std::string cut_end(std::string_view text, std::size_t width) {
  if (columns_of(text) <= width) return std::string(text);
  if (width == 0) return "";
  std::string out;
  std::size_t columns = 0;
  while (!text.empty()) {
    const CodePoint c = decode(text);
    const std::size_t bytes = c.bytes == 0 ? 1 : c.bytes;
    const std::size_t more = c.bytes == 0 ? 1 : width_of(c.value);
    if (columns + more > width - 1) break;
    out += text.substr(0, bytes);
    columns += more;
    text.remove_prefix(bytes);
  }
  return out + "…";
}

std::string cut_start(std::string_view text, std::size_t width) {
  std::size_t columns = columns_of(text);
  if (columns <= width) return std::string(text);
  if (width == 0) return "";
  while (!text.empty() && columns > width - 1) {
    const CodePoint c = decode(text);
    columns -= c.bytes == 0 ? 1 : width_of(c.value);
    text.remove_prefix(c.bytes == 0 ? 1 : c.bytes);
  }
  return "…" + std::string(text);
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxColumns = 60;
  return '"' + cut_end(sanitize(text), kMaxColumns) + '"';
}

}  // namespace base
}  // namespace rankstacks
