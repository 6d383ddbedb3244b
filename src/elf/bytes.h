// Bounds-checked access to untrusted bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace rankstacks::elf {

// bytes[offset, offset + size), cut off at the end of `bytes`; empty if `offset` is outside.
inline std::span<const std::byte> clip(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset >= bytes.size()) return {};
  const std::uint64_t left = bytes.size() - offset;
  return bytes.subspan(offset, size < left ? size : left);
}

// bytes[offset, offset + size) if all of them exist, else empty.
inline std::span<const std::byte> exactly(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.subspan(offset, size);
}

template <class T>
std::optional<T> load(std::span<const std::byte> bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace rankstacks::elf
