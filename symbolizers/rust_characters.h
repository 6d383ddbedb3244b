// The characters in Rust's symbol names: digits, UTF-8, escapes, punycode (for rust_v0.cc and rust_legacy.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rankstacks::symbolizers {

constexpr std::string_view kHexDigits = "0123456789abcdef";

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Whether `c` is neither a surrogate nor beyond Unicode.
inline bool is_character(std::uint64_t c) { return c <= 0x10'ffff && (c < 0xd800 || c > 0xdfff); }

// `c` must be is_character().
void append_utf8(std::string& text, std::uint64_t c);

// As in Rust's literals, which are enclosed in `quote`. Bytes from 0x80 on are parts of UTF-8 sequences and stay
// unchanged.
void append_escaped(std::string& text, unsigned char c, char quote);

// RFC 3492: `ascii` with the characters of `deltas` inserted. std::nullopt if damaged, or if there are more than 256
// characters, as each is inserted into the middle.
std::optional<std::string> decode_punycode(std::string_view ascii, std::string_view deltas);

}  // namespace rankstacks::symbolizers
