// Demanglers for Rust's two schemes. Both read names from untrusted files: recursion, text and work are bounded for any
// name.
//
// v0 ("_R..."), in which std itself is compiled (seen in 1.95), and crates with -C symbol-mangling-version=v0:
//   https://doc.rust-lang.org/rustc/symbol-mangling/v0.html,
//   https://rust-lang.github.io/rfcs/2603-rust-symbol-name-mangling-v0.html
// The legacy scheme ("_ZN...17h<16 hex digits>E"): C++'s nested names, with characters that C++ does not have written
// as $..$, "." and "..", and a hash at the end:
//   https://rust-lang.github.io/rfcs/2603-rust-symbol-name-mangling-v0.html#the-current-mangling-scheme
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rankstacks::symbolizers {

// The text that gdb and c++filt show: without the hashes of crates and functions, the types of constants, and anything
// after a '.' ("foo.llvm.1234"). std::nullopt if the name is not of this scheme, malformed, nested more than 500 levels
// deep, longer than `most_text` bytes, or too much work (kMaxRead in rust_v0.cc). `name` must not have a symbol version
// ("@V_2").
std::optional<std::string> demangle_rust_v0(std::string_view name, std::size_t most_text);
std::optional<std::string> demangle_rust_legacy(std::string_view name, std::size_t most_text);

}  // namespace rankstacks::symbolizers
