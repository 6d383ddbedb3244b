#include "python/line_table.h"

#include <limits>

namespace rankstacks::python {
namespace {

// A line as CPython's f_lineno gives it: None for anything below 0. Checks the range, so that a damaged table causes no
// overflow.
std::optional<int> as_line(std::int64_t line) {
  if (line < 0 || line > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(line);
}

}  // namespace

std::optional<int> line_in_lnotab(LineTable table, int first_line, std::int64_t instruction) {
  std::int64_t line = first_line, address = 0;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    address += table[i];
    if (address > instruction) break;
    line += static_cast<std::int8_t>(table[i + 1]);
  }
  return as_line(line);
}

std::optional<int> line_in_ranges(LineTable table, int first_line, std::int64_t instruction) {
  if (instruction < 0) return as_line(first_line);
  constexpr std::int8_t kNoLine = -128;
  std::int64_t line = first_line, end = 0;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    end += table[i];
    const auto delta = static_cast<std::int8_t>(table[i + 1]);
    if (delta != kNoLine) line += delta;  // applies to this very range
    if (instruction < end) return delta == kNoLine ? std::nullopt : as_line(line);
  }
  return std::nullopt;
}

std::optional<int> line_in_locations(LineTable table, int first_line, std::int64_t instruction) {
  if (instruction < 0) return as_line(first_line);
  constexpr unsigned kStartBit = 0x80, kCodeUnit = 2;
  enum Code : unsigned { kOneLine0 = 10, kOneLine1 = 11, kOneLine2 = 12, kNoColumns = 13, kLong = 14, kNone = 15 };

  std::int64_t line = first_line, end = 0;
  for (std::size_t i = 0; i < table.size();) {
    const unsigned first = table[i++];
    const unsigned code = (first >> 3) & 15;
    end += ((first & 7) + 1) * kCodeUnit;
    std::int64_t delta = 0;
    if (code == kNoColumns || code == kLong) {
      // 6 bits a byte, lowest first, bit 6 set on all but the last byte; the sign is bit 0 of the whole.
      std::uint64_t value = 0;
      for (unsigned shift = 0; i < table.size(); shift += 6) {
        const unsigned byte = table[i++];
        if (shift < 60) value |= static_cast<std::uint64_t>(byte & 63) << shift;
        if (!(byte & 64)) break;
      }
      delta = static_cast<std::int64_t>(value >> 1);
      if (value & 1) delta = -delta;
    } else if (code == kOneLine1 || code == kOneLine2) {
      delta = code - kOneLine0;
    }
    // Deltas are 32 bits wide; a larger one is damage, and must not overflow when many entries are added up.
    if (delta > std::numeric_limits<int>::max() || delta < std::numeric_limits<int>::min()) return std::nullopt;
    line += delta;
    if (instruction < end) return code == kNone ? std::nullopt : as_line(line);
    while (i < table.size() && !(table[i] & kStartBit)) ++i;
  }
  return std::nullopt;
}

}  // namespace rankstacks::python
