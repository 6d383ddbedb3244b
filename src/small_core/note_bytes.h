// The bodies of this tool's own notes (target/own_notes.h): little-endian numbers without padding, texts with their
// length in front. What is read is untrusted.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "elf/bytes.h"

namespace rankstacks::small_core {

class NoteWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_integral_v<T>);
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void put_bytes(std::span<const std::byte> bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void put_text(std::string_view text) { put_bytes(std::as_bytes(std::span(text.data(), text.size()))); }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// After the first read beyond the end, is_sound() is false and all further reads give 0.
class NoteReader {
 public:
  explicit NoteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    static_assert(std::is_integral_v<T>);
    const auto value = elf::load<T>(bytes_, at_);
    if (!sound_ || !value) return fail(), T{};
    at_ += sizeof(T);
    return *value;
  }
  std::span<const std::byte> get_bytes() {
    const auto size = get<std::uint32_t>();
    if (!sound_ || size > bytes_.size() - at_) return fail(), std::span<const std::byte>();
    const auto taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }
  std::string get_text() {
    const auto taken = get_bytes();
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  // A number of entries of which each has at least `least` bytes; 0, and no longer sound, if there cannot be as many.
  std::uint32_t get_count(std::size_t least) {
    const auto count = get<std::uint32_t>();
    if (sound_ && count <= (bytes_.size() - at_) / least) return count;
    return fail(), 0;
  }

  void skip(std::size_t size) {
    if (!sound_ || size > bytes_.size() - at_) return fail();
    at_ += size;
  }

  bool is_sound() const { return sound_; }

 private:
  void fail() { sound_ = false; }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool sound_ = true;
};

}  // namespace rankstacks::small_core
