// SHA-256 (FIPS 180-4), and its result as base64: what a content security policy names a script by.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace rankstacks {
inline namespace base {

using Sha256 = std::array<std::uint8_t, 32>;

Sha256 sha256(std::string_view bytes);

// RFC 4648, with padding.
std::string base64(std::string_view bytes);

}  // namespace base
}  // namespace rankstacks
