#include "target/target.h"

#include <algorithm>
#include <array>

namespace rankstacks::target {

std::optional<std::string> Target::read_c_string(Address address, std::size_t limit) const {
  std::string text;
  std::array<std::byte, 256> chunk;
  while (text.size() <= limit) {
    const std::size_t n = read(address + text.size(), chunk);
    const auto end = std::find(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n), std::byte{0});
    text.append(reinterpret_cast<const char*>(chunk.data()), static_cast<std::size_t>(end - chunk.begin()));
    if (end != chunk.begin() + static_cast<std::ptrdiff_t>(n))
      return text.size() <= limit ? std::optional(text) : std::nullopt;
    if (n < chunk.size()) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace rankstacks::target
