// The characters of Rust's names: digits, UTF-8, escapes, punycode (for rust_v0.cc and rust_legacy.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rankstacks {

constexpr std::string_view kHexDigits = "0123456789abcdef";

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Neither a surrogate nor beyond Unicode.
inline bool is_character(std::uint64_t c) { return c <= 0x10'ffff && (c < 0xd800 || c > 0xdfff); }

// `c`: is_character().
void append_utf8(std::string& text, std::uint64_t c);

// As Rust's literals are written, between two of `quote`. Bytes from 0x80 on are parts of UTF-8 sequences, which stay as they are.
void append_escaped(std::string& text, unsigned char c, char quote);

// RFC 3492: `ascii`, with what `deltas` says put between. Nothing: damaged, or more than 256 characters, as each is inserted into the middle.
std::optional<std::string> decode_punycode(std::string_view ascii, std::string_view deltas);

}  // namespace rankstacks
