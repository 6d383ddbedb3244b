// Checked sequential reading of call frame information. After the first value that is missing or not sound, ok() stays
// false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rankstacks {

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

  // At most ten bytes, as 64 bits have; what would be shifted out of them is not sound.
  std::uint64_t uleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      if (!ok_) return 0;
      if (shift == 63 && byte > 1) break;
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    ok_ = false;
    return 0;
  }
  std::int64_t sleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      if (!ok_) return 0;
      if (shift == 63 && byte != 0 && byte != 0x7f) break;
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) != 0) continue;
      if ((byte & 0x40) != 0 && shift < 57) value |= ~std::uint64_t{0} << (shift + 7);
      return static_cast<std::int64_t>(value);
    }
    ok_ = false;
    return 0;
  }

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
  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  bool ok_ = true;
};

}  // namespace rankstacks
