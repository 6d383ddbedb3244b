#include "gpu/loader_cache.h"

#include <cstdint>
#include <cstring>
#include <optional>

namespace rankstacks::gpu {
namespace {

constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeader = 48, kEntry = 24;
constexpr std::uint32_t kX86_64 = 0x0303;  // FLAG_X8664_LIB64 | FLAG_ELF_LIBC6
constexpr std::size_t kMaxPaths = 64;

std::uint32_t word_at(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

std::optional<std::string_view> string_at(std::string_view bytes, std::size_t at) {
  if (at >= bytes.size()) return std::nullopt;
  const std::size_t end = bytes.find('\0', at);
  if (end == std::string_view::npos) return std::nullopt;
  return bytes.substr(at, end - at);
}

}  // namespace

std::vector<std::string> paths_in_loader_cache(std::span<const std::byte> cache, std::string_view name) {
  const std::string_view all(reinterpret_cast<const char*>(cache.data()), cache.size());
  const std::size_t start = all.find(kMagic);
  if (start == std::string_view::npos) return {};
  const std::string_view bytes = all.substr(start);
  if (bytes.size() < kHeader) return {};
  const std::size_t count = word_at(bytes, kMagic.size());
  if (count > (bytes.size() - kHeader) / kEntry) return {};
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < count && paths.size() < kMaxPaths; ++i) {
    const std::size_t entry = kHeader + i * kEntry;
    if (word_at(bytes, entry) != kX86_64) continue;
    const std::size_t at = word_at(bytes, entry + 4);
    // Compared in place: otherwise a list of many names whose terminators are missing would be read to the end of the
    // file again and again.
    if (at >= bytes.size() || bytes.size() - at <= name.size() || bytes.substr(at, name.size()) != name ||
        bytes[at + name.size()] != '\0')
      continue;
    if (const auto path = string_at(bytes, word_at(bytes, entry + 8))) paths.emplace_back(*path);
  }
  return paths;
}

}  // namespace rankstacks::gpu
