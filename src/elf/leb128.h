// LEB128 numbers (DWARF 5, 7.6) in untrusted bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rankstacks::elf {

// Both functions read the number at bytes[at] and advance `at` past it. They return std::nullopt, and do not change
// `at`, if the bytes end before the number does, or if it does not fit into 64 bits. A number therefore has at most ten
// bytes: one that is padded to more is refused, as no assembler or linker writes it.
inline std::optional<std::uint64_t> load_uleb(std::span<const std::byte> bytes, std::uint64_t& at) {
  std::uint64_t value = 0, next = at;
  for (unsigned shift = 0; shift < 64 && next < bytes.size(); shift += 7) {
    const auto byte = std::to_integer<std::uint8_t>(bytes[next++]);
    if (shift == 63 && byte > 1) return std::nullopt;
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) != 0) continue;
    at = next;
    return value;
  }
  return std::nullopt;
}

inline std::optional<std::int64_t> load_sleb(std::span<const std::byte> bytes, std::uint64_t& at) {
  std::uint64_t value = 0, next = at;
  for (unsigned shift = 0; shift < 64 && next < bytes.size(); shift += 7) {
    const auto byte = std::to_integer<std::uint8_t>(bytes[next++]);
    if (shift == 63 && byte != 0 && byte != 0x7f) return std::nullopt;
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) != 0) continue;
    if ((byte & 0x40) != 0 && shift < 57) value |= ~std::uint64_t{0} << (shift + 7);
    at = next;
    return static_cast<std::int64_t>(value);
  }
  return std::nullopt;
}

}  // namespace rankstacks::elf
