// Quotes an untrusted text (a path, a value from an environment) as one word of a command that is displayed for copying
// into a shell: there it means exactly these bytes, and executes nothing.
#pragma once

#include <string>
#include <string_view>

namespace rankstacks {
inline namespace base {

// The text is unchanged if no character in it is special to a shell; else it is in single quotes; if it contains
// characters that affect a terminal or end a line, or is not UTF-8, it is written as $'...' with octal escapes (bash,
// zsh, ksh, POSIX.1-2024). A program may still take a word that begins with "-" for an option: "--" belongs before it.
std::string shell_quoted(std::string_view text);

}  // namespace base
}  // namespace rankstacks
