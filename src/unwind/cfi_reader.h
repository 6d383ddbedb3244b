// Checked sequential reading of call frame information. After the first value that is missing or not sound, ok() stays
// false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "elf/leb128.h"

namespace rankstacks::unwind {

class CfiReader {
 public:
  explicit CfiReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return offset_ == bytes_.size(); }
  std::size_t offset() const { return offset_; }
  std::size_t left() const { return bytes_.size() - offset_; }

  template <class T>
  T fixed() {
    T value{};
    const auto from = take(sizeof value);
    if (!from.empty()) std::memcpy(&value, from.data(), sizeof value);
    return value;
  }

  std::uint64_t uleb() { return number(elf::load_uleb); }
  std::int64_t sleb() { return number(elf::load_sleb); }

  std::span<const std::byte> take(std::uint64_t size) {
    if (!ok_ || size > left()) {
      ok_ = false;
      return {};
    }
    const auto taken = bytes_.subspan(offset_, size);
    offset_ += size;
    return taken;
  }

 private:
  template <class T>
  T number(std::optional<T> (*load)(std::span<const std::byte>, std::uint64_t&)) {
    const auto value = ok_ ? load(bytes_, offset_) : std::nullopt;
    ok_ = value.has_value();
    return value.value_or(0);
  }

  std::span<const std::byte> bytes_;
  std::uint64_t offset_ = 0;
  bool ok_ = true;
};

}  // namespace rankstacks::unwind
