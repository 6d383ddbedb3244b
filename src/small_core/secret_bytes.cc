#include "small_core/secret_bytes.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

namespace rankstacks::small_core {
namespace {

constexpr std::byte kInstead{'x'};

// A secret that is cut: its first bytes at the end of `bytes` (NT_PRPSINFO has 79 characters of the command line; the
// next page was not kept), or its last bytes at the beginning.
void overwrite_ends(std::span<std::byte> bytes, std::string_view secret) {
  for (std::size_t n = std::min(secret.size() - 1, bytes.size()); n >= kShortestSecret; --n) {
    if (std::memcmp(bytes.data() + bytes.size() - n, secret.data(), n) == 0)
      std::fill(bytes.end() - static_cast<std::ptrdiff_t>(n), bytes.end(), kInstead);
    if (std::memcmp(bytes.data(), secret.data() + secret.size() - n, n) == 0)
      std::fill(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n), kInstead);
  }
}

void overwrite(std::span<std::byte> bytes, std::string_view secret) {
  if (secret.size() < kShortestSecret) return;
  for (std::byte* at = bytes.data(); at != nullptr;) {
    const auto left = static_cast<std::size_t>(bytes.data() + bytes.size() - at);
    at = static_cast<std::byte*>(memmem(at, left, secret.data(), secret.size()));
    if (at == nullptr) break;
    std::fill(at, at + secret.size(), kInstead);
    at += secret.size();
  }
  overwrite_ends(bytes, secret);
}

// The texts in notes end with a 0, behind which secrets that are cut do not go on.
void overwrite_in_notes(std::span<std::byte> notes, std::string_view secret) {
  overwrite(notes, secret);
  for (std::size_t at = 0; at < notes.size();) {
    const auto end = std::find(notes.begin() + static_cast<std::ptrdiff_t>(at), notes.end(), std::byte{0});
    const auto length = static_cast<std::size_t>(end - notes.begin()) - at;
    if (length >= kShortestSecret && secret.size() >= kShortestSecret)
      overwrite_ends(notes.subspan(at, length), secret);
    at += length + 1;
  }
}

}  // namespace

void overwrite_secrets(KeptProcess& process, const std::vector<std::string>& secrets) {
  for (const std::string& secret : secrets) {
    for (Piece& piece : process.pieces) overwrite(piece.bytes, secret);
    overwrite_in_notes(process.notes, secret);
  }
}

}  // namespace rankstacks::small_core
