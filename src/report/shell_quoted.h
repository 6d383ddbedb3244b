// A text that somebody else chose (a path, a value of an environment) as one word of a command that is shown to be
// copied into a shell: it means exactly these bytes there, and runs nothing.
#pragma once

#include <string>
#include <string_view>

namespace rankstacks {

// As it is where a shell has nothing to read in it; else in single quotes; where it holds what acts on a terminal, ends
// a line or is no UTF-8, as $'...' with octal escapes (bash, zsh, ksh, POSIX.1-2024). A word that begins with "-" is
// still one that a program may take for an option: "--" belongs before it.
std::string shell_quoted(std::string_view text);

}  // namespace rankstacks
