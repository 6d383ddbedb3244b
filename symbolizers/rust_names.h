// Rust's two manglings. Both readers take names out of untrusted files: recursion, text and work are bounded, whatever the name says.
//
// v0 ("_R..."), which std itself comes with (seen in 1.95) and crates have with -C symbol-mangling-version=v0:
//   https://doc.rust-lang.org/rustc/symbol-mangling/v0.html, https://rust-lang.github.io/rfcs/2603-rust-symbol-name-mangling-v0.html
// The old one ("_ZN...17h<16 hex digits>E"): C++'s nested names with the characters that C++ has not written as $..$, "." and "..", and a hash at the end:
//   https://rust-lang.github.io/rfcs/2603-rust-symbol-name-mangling-v0.html#the-current-mangling-scheme
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rankstacks {

// The text that gdb and c++filt show: without the hashes of crates and functions, the types of constants, and what stands behind a '.' ("foo.llvm.1234").
// Nothing: not such a name, malformed, nested more than 500 levels deep, longer than `most_text` bytes, or too much work (kMaxRead in rust_v0.cc).
// `name` comes without a symbol version ("@V_2").
std::optional<std::string> demangle_rust_v0(std::string_view name, std::size_t most_text);
std::optional<std::string> demangle_rust_legacy(std::string_view name, std::size_t most_text);

}  // namespace rankstacks
